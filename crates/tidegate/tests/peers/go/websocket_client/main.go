// Tests an echo with Go's gorilla/websocket: websocket_client URL. Prints a line for each test that passes.
package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

var url = os.Args[1]

func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func connect(header http.Header) (*websocket.Conn, *http.Response, error) {
	dialer := websocket.Dialer{
		EnableCompression: true,
		Subprotocols:      []string{"other", "chat"},
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}
	return dialer.Dial(url, header)
}

func connected() *websocket.Conn {
	connection, _, err := connect(nil)
	must(err)
	if protocol := connection.Subprotocol(); protocol != "chat" {
		log.Fatalf("subprotocol %q", protocol)
	}
	return connection
}

func echoed(connection *websocket.Conn, kind int, message []byte) {
	must(connection.WriteMessage(kind, message))
	received(connection, kind, message)
}

func received(connection *websocket.Conn, kind int, message []byte) {
	gotKind, got, err := connection.ReadMessage()
	must(err)
	if gotKind != kind || !bytes.Equal(got, message) {
		log.Fatalf("%d bytes of kind %d instead of %d bytes of kind %d", len(got), gotKind, len(message), kind)
	}
}

func main() {
	log.SetFlags(log.Lshortfile)
	deadline := time.AfterFunc(4*time.Minute, func() { log.Fatal("timed out") })
	defer deadline.Stop()
	messages()
	fragments()
	pings()
	closes()
	clients()
	refusals()
}

func messages() {
	connection := connected()
	noise := make([]byte, 3<<20)
	rand.Read(noise)
	var builder strings.Builder
	for builder.Len() < 1<<20 {
		fmt.Fprintf(&builder, "grüße %d, ", rand.Int())
	}
	text := builder.String()
	for _, size := range []int{0, 1, 125, 126, 127, 65535, 65536, 1 << 20, 3 << 20} {
		echoed(connection, websocket.BinaryMessage, noise[:size])
		if size < len(text) {
			echoed(connection, websocket.TextMessage, []byte(strings.ToValidUTF8(text[:size], "")))
		}
	}
	for at := 0; at < 500; at++ {
		must(connection.WriteMessage(websocket.TextMessage, []byte(fmt.Sprint("message ", at))))
	}
	for at := 0; at < 500; at++ {
		received(connection, websocket.TextMessage, []byte(fmt.Sprint("message ", at)))
	}
	must(connection.Close())
	fmt.Println("messages")
}

// A writer sends a frame whenever its buffer of 4 KiB is full.
func fragments() {
	connection := connected()
	writer, err := connection.NextWriter(websocket.TextMessage)
	must(err)
	text := []byte(strings.Repeat("übergröße", 1000))
	for at := 0; at < len(text); at += 777 {
		end := at + 777
		if end > len(text) {
			end = len(text)
		}
		_, err = writer.Write(text[at:end])
		must(err)
	}
	must(writer.Close())
	received(connection, websocket.TextMessage, text)
	fmt.Println("fragments")
}

func pings() {
	connection := connected()
	pong := ""
	connection.SetPongHandler(func(data string) error {
		pong += data
		return nil
	})
	for _, data := range []string{"one", "two"} {
		must(connection.WriteControl(websocket.PingMessage, []byte(data), time.Now().Add(time.Minute)))
	}
	echoed(connection, websocket.TextMessage, []byte("after the pongs"))
	if pong != "onetwo" {
		log.Fatalf("pongs %q", pong)
	}
	fmt.Println("pings")
}

func closes() {
	for _, code := range []int{1000, 1001, 1011, 3000, 4999} {
		connection := connected()
		data := websocket.FormatCloseMessage(code, "über")
		must(connection.WriteControl(websocket.CloseMessage, data, time.Now().Add(time.Minute)))
		_, _, err := connection.ReadMessage()
		if !websocket.IsCloseError(err, code) {
			log.Fatalf("close %d: %v", code, err)
		}
	}
	fmt.Println("closes")
}

func clients() {
	var group sync.WaitGroup
	for at := 0; at < 50; at++ {
		group.Add(1)
		go func(at int) {
			defer group.Done()
			connection := connected()
			for count := 0; count < 20; count++ {
				echoed(connection, websocket.TextMessage, []byte(strings.Repeat(fmt.Sprint(at), 1000)))
			}
			if at%2 == 0 {
				// Without a close handshake.
				must(connection.UnderlyingConn().Close())
			}
		}(at)
	}
	group.Wait()
	fmt.Println("clients")
}

func refusals() {
	_, response, err := connect(http.Header{"Origin": {"https://evil.example"}})
	if !errors.Is(err, websocket.ErrBadHandshake) || response.StatusCode != 403 {
		log.Fatalf("a page of another host: %v %v", response, err)
	}
	fmt.Println("refusals")
}
