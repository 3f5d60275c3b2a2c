package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// GoReleaser understands its file, which releases the three commands under names of their own,
// static, from packages that there are.
func TestRelease(t *testing.T) {
	project, err := config.Load("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var binaries []string
	for _, b := range project.Builds {
		binaries = append(binaries, b.Binary)
		if !strings.HasPrefix(b.Binary, "waterclock") || !slices.Contains(b.Env, "CGO_ENABLED=0") || len(b.Goos) < 3 {
			t.Errorf("%+v", b)
		}
		read(t, "../../"+b.Main+"/main.go")
	}
	if len(binaries) != 3 || project.Checksum.NameTemplate == "" || len(project.SBOMs) != 1 {
		t.Errorf("releases %q, checksums %q, %d bills of materials", binaries, project.Checksum.NameTemplate, len(project.SBOMs))
	}
	for _, archive := range project.Archives {
		for _, f := range archive.Files {
			if !strings.Contains(f.Source, "*") {
				read(t, "../../"+f.Source)
			}
		}
	}
}
