// Command send sends one push notification to one device through Firebase Cloud Messaging,
// without a queue and without limits: a first try of your credentials and a device's token.
//
//	go run ./examples/send service-account.json DEVICE-TOKEN "Hello"
package main

import (
	"context"
	"log"
	"os"

	"github.com/waterclock/waterclock/notify"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: send SERVICE-ACCOUNT.json DEVICE-TOKEN TITLE")
	}
	account, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	config := notify.FCMConfig{Credentials: account}
	if err := send(config, notify.Target{Token: os.Args[2]}, notify.Message{Title: os.Args[3]}); err != nil {
		log.Fatal(err)
	}
}

func send(config notify.FCMConfig, to notify.Target, m notify.Message) error {
	sender, err := notify.NewFCM(config)
	if err != nil {
		return err
	}
	defer sender.Close()
	return sender.Send(context.Background(), m, to).Err // nil: Google took it
}
