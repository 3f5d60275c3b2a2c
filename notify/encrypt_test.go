package notify

import (
	"bytes"
	"crypto/ecdh"
	"testing"
)

// The example of RFC 8291, section 5 and appendix A, bit for bit.
func TestEncryptIsRFC8291(t *testing.T) {
	decode := func(text string) []byte {
		raw, err := decodeB64(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	key, err := ecdh.P256().NewPrivateKey(decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	to := Target{
		P256dh: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
		Auth:   "BTBZMqHH6r4Tts7J_aSIgg",
	}
	got, err := encryptWith(to, []byte("When I grow up, I want to be a watermelon"), 0, key, decode("DGv6ra1nlYgDCS1FRnbzlw"))
	if err != nil {
		t.Fatal(err)
	}
	want := decode("DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml" +
		"mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT" +
		"pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestPaddingHidesTheLength(t *testing.T) {
	key := "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	to := Target{P256dh: key, Auth: "BTBZMqHH6r4Tts7J_aSIgg"}
	for plain, want := range map[int]int{1: 128, 128: 128, 129: 256, 3993: 3993} {
		body, err := encrypt(to, make([]byte, plain), 128)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(body) - 86 - 17; got != want {
			t.Errorf("%d bytes look like %d, want %d", plain, got, want)
		}
	}
	if _, err := encrypt(to, make([]byte, 3994), 128); err == nil {
		t.Error("more than push services take is taken")
	}
	for _, bad := range []Target{{P256dh: key}, {P256dh: "AA", Auth: to.Auth}, {P256dh: "$", Auth: to.Auth}} {
		if _, err := encrypt(bad, nil, 128); err == nil {
			t.Error("keys that are none were taken")
		}
	}
}
