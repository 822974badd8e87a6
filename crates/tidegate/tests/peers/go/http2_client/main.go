// Tests a server with Go's HTTP/2 client: http2_client URL. Prints a line for each test that passes.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	streams = 100
	cancels = 20
)

var (
	base   = os.Args[1]
	client *http.Client
)

func main() {
	log.SetFlags(log.Lshortfile)
	deadline := time.AfterFunc(4*time.Minute, func() { log.Fatal("timed out") })
	defer deadline.Stop()
	client = &http.Client{Transport: transport()}
	for _, test := range []func(){get, post, hundred, slow, cancel, cancelUpload} {
		test()
	}
}

// The transport of net/http over TLS, and that of golang.org/x/net with prior knowledge on a plain connection.
func transport() http.RoundTripper {
	trusting := &tls.Config{InsecureSkipVerify: true}
	if strings.HasPrefix(base, "https:") {
		return &http.Transport{TLSClientConfig: trusting, ForceAttemptHTTP2: true}
	}
	dial := func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}
	return &http2.Transport{AllowHTTP: true, DialTLSContext: dial}
}

func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func noise(size int) []byte {
	data := make([]byte, size)
	rand.Read(data)
	return data
}

func open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, base+path, body)
	must(err)
	return client.Do(request)
}

// The whole body of a response, which must have status 200.
func fetch(method, path string, body []byte) []byte {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	response, err := open(context.Background(), method, path, reader)
	must(err)
	defer response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != 200 {
		log.Fatalf("%s: %s %s", path, response.Proto, response.Status)
	}
	data, err := io.ReadAll(response.Body)
	must(err)
	return data
}

func wanted(path string, got, want []byte) {
	if !bytes.Equal(got, want) {
		log.Fatalf("%s: %d bytes instead of %d, or other ones", path, len(got), len(want))
	}
}

func get() {
	wanted("/respond", fetch("GET", "/respond", nil), []byte("responded"))
	wanted("/hello", fetch("GET", "/hello", nil), []byte("hello from the origin\n"))
	if size := len(fetch("GET", "/synthetic?s=100000", nil)); size != 100000 {
		log.Fatalf("%d bytes", size)
	}
	fmt.Println("get")
}

func post() {
	sent := noise(1 << 20)
	wanted("/echo", fetch("POST", "/echo", sent), sent)
	wanted("/respond", fetch("POST", "/respond", sent), []byte("responded"))
	if size := len(fetch("POST", "/synthetic?s=1000", sent)); size != 1000 {
		log.Fatalf("%d bytes", size)
	}
	// A body of unknown length.
	response, err := open(context.Background(), "POST", "/echo", io.MultiReader(bytes.NewReader(sent)))
	must(err)
	got, err := io.ReadAll(response.Body)
	must(err)
	wanted("/echo", got, sent)
	fmt.Println("post")
}

func hundred() {
	var group sync.WaitGroup
	for at := 0; at < streams; at++ {
		group.Add(3)
		go func() {
			defer group.Done()
			wanted("/respond", fetch("GET", "/respond", nil), []byte("responded"))
		}()
		go func() {
			defer group.Done()
			if size := len(fetch("GET", "/synthetic?s=50000", nil)); size != 50000 {
				log.Fatalf("%d bytes", size)
			}
		}()
		sent := noise(10000 + at)
		go func() {
			defer group.Done()
			wanted("/echo", fetch("POST", "/echo", sent), sent)
		}()
	}
	group.Wait()
	fmt.Println("hundred")
}

// A response that is not read holds up no other stream of its connection.
func slow() {
	for path, size := range map[string]int64{"/synthetic?s=20m": 20 << 20, "/big": 20 << 20} {
		response, err := open(context.Background(), "GET", path, nil)
		must(err)
		piece := make([]byte, 10)
		_, err = io.ReadFull(response.Body, piece)
		must(err)
		for count := 0; count < 20; count++ {
			wanted("/respond", fetch("GET", "/respond", nil), []byte("responded"))
			wanted("/hello", fetch("GET", "/hello", nil), []byte("hello from the origin\n"))
		}
		rest, err := io.Copy(io.Discard, response.Body)
		must(err)
		if rest+10 != size {
			log.Fatalf("%s: %d bytes", path, rest+10)
		}
	}
	fmt.Println("slow")
}

func cancel() {
	var group sync.WaitGroup
	for at := 0; at < cancels; at++ {
		path := []string{"/synthetic?s=20m", "/big"}[at%2]
		group.Add(1)
		go func() {
			defer group.Done()
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			response, err := open(ctx, "GET", path, nil)
			must(err)
			_, err = io.ReadFull(response.Body, make([]byte, 1000))
			must(err)
			stop()
			if _, err = io.Copy(io.Discard, response.Body); !errors.Is(err, context.Canceled) {
				log.Fatalf("%s: not cancelled: %v", path, err)
			}
		}()
	}
	group.Wait()
	wanted("/hello", fetch("GET", "/hello", nil), []byte("hello from the origin\n"))
	fmt.Println("cancel")
}

// A body that fails after its first part.
type failing struct{ left int }

var errFails = errors.New("the body fails")

func (body *failing) Read(piece []byte) (int, error) {
	if body.left == 0 {
		return 0, errFails
	}
	size := len(piece)
	if size > body.left {
		size = body.left
	}
	body.left -= size
	return size, nil
}

func cancelUpload() {
	for _, path := range []string{"/echo", "/synthetic?s=1000&B=1m", "/echo"} {
		if response, err := open(context.Background(), "POST", path, &failing{100000}); !errors.Is(err, errFails) {
			log.Fatalf("%s: not cancelled: %v %v", path, response, err)
		}
	}
	wanted("/hello", fetch("GET", "/hello", nil), []byte("hello from the origin\n"))
	fmt.Println("cancel upload")
}
