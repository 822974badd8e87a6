// Serves the tests of HTTP/2 towards servers with Go's server: http2_server ADDRESS [tls]. Prints its address. SIGTERM
// stops it gracefully (GOAWAY): it ends when its connections have ended. Its
// windows are small.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"

	"tidegate-clients/certificate"
)

func main() {
	log.SetFlags(log.Lshortfile)
	listener, err := net.Listen("tcp", os.Args[1])
	must(err)
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/count", count)
	mux.HandleFunc("/reset", reset)
	protocol := &http2.Server{MaxUploadBufferPerStream: 3000, MaxUploadBufferPerConnection: 1 << 17}
	server := &http.Server{Handler: h2c.NewHandler(mux, protocol)}
	must(http2.ConfigureServer(server, protocol))
	connections := &counted{Listener: listener}
	ended := make(chan struct{})
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM)
	go func() {
		<-stops
		must(server.Shutdown(context.Background()))
		connections.open.Wait()
		close(ended)
	}()
	fmt.Println(listener.Addr())
	if len(os.Args) > 2 && os.Args[2] == "tls" {
		server.TLSConfig.Certificates = []tls.Certificate{certificate.SelfSigned()}
		err = server.ServeTLS(connections, "", "")
	} else {
		err = server.Serve(connections)
	}
	if err != http.ErrServerClosed {
		log.Fatal(err)
	}
	<-ended
}

func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

// Sends each piece of the request back.
func echo(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(200)
	buffer := make([]byte, 20000)
	for {
		size, err := r.Body.Read(buffer)
		w.Write(buffer[:size])
		w.(http.Flusher).Flush()
		if err == io.EOF {
			return
		}
		must(err)
	}
}

// Counts the request, and sends the sum in a trailer too.
func count(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Sum")
	size, err := io.Copy(io.Discard, r.Body)
	must(err)
	var trailers []string
	for name, values := range r.Trailer {
		trailers = append(trailers, strings.ToLower(name)+"="+values[0])
	}
	fmt.Fprintln(w, size, strings.Join(trailers, " "))
	w.Header().Set("X-Sum", fmt.Sprint(size))
}

// Resets the stream in the middle of a response.
func reset(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "only this")
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// A listener that knows when all connections have ended.
type counted struct {
	net.Listener
	open sync.WaitGroup
}

type countedConn struct {
	net.Conn
	end func()
}

func (l *counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	var once sync.Once
	return &countedConn{conn, func() { once.Do(l.open.Done) }}, nil
}

func (c *countedConn) Close() error {
	c.end()
	return c.Conn.Close()
}
