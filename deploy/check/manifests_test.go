package check

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// ScaledObject is what this project uses of KEDA's resource, as its documentation describes it.
type ScaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicas int `json:"minReplicaCount"`
		MaxReplicas int `json:"maxReplicaCount"`
		Polling     int `json:"pollingInterval"`
		Cooldown    int `json:"cooldownPeriod"`
		Triggers    []struct {
			Type       string `json:"type"`
			MetricType string `json:"metricType"`
			Metadata   struct {
				ServerAddress string `json:"serverAddress"`
				Query         string `json:"query"`
				Threshold     string `json:"threshold"`
			} `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// DeepCopyObject implements [runtime.Object].
func (s *ScaledObject) DeepCopyObject() runtime.Object { return new(*s) }

// kustomized is what kustomize build makes of a directory beside deploy/check.
func kustomized(t *testing.T, dir string) []byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// build is kustomize build of a directory of deploy/kubernetes, read strictly.
func build(t *testing.T, dir string) []runtime.Object {
	t.Helper()
	return decode(t, kustomized(t, "../kubernetes/"+dir))
}

// documents returns the documents of a manifest.
func documents(t *testing.T, manifest []byte) (all [][]byte) {
	t.Helper()
	reader := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(manifest)))
	for {
		document := make([]byte, 1<<20)
		n, err := reader.Read(document)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(document[:n])) > 0 {
			all = append(all, document[:n])
		}
	}
}

// decode reads each resource of a manifest strictly: an unknown field is an error.
func decode(t *testing.T, manifest []byte) (objects []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	scheme.AddKnownTypes(schema.GroupVersion{Group: "keda.sh", Version: "v1alpha1"}, &ScaledObject{})
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, document := range documents(t, manifest) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%v\n%s", err, document)
			continue
		}
		objects = append(objects, object)
	}
	return objects
}

// named is what every resource has.
type named interface {
	runtime.Object
	metav1.Object
}

// all returns the resources of a type.
func all[T named](objects []runtime.Object) (found []T) {
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// one returns the only resource of a type and a name.
func one[T named](t *testing.T, objects []runtime.Object, name string) (found T) {
	t.Helper()
	var names []string
	for _, o := range all[T](objects) {
		if o.GetName() == name {
			return o
		}
		names = append(names, o.GetName())
	}
	t.Fatalf("no %s %q, but %q", fmt.Sprintf("%T", found), name, names)
	return found
}
