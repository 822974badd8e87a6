// Serves gRPC's interoperability tests: grpc_server ADDRESS [tls]. Prints its address, then a line for each call of
// FullDuplexCall: its deadline, and whether its client left before it ended. Its health service reports that the service "ready" is
// served, and "broken" is not. SIGTERM stops it gracefully (GOAWAY).
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"

	"tidegate-clients/certificate"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	options := []grpc.ServerOption{grpc.StreamInterceptor(report), orca.CallMetricsServerOption(nil)}
	if len(os.Args) > 2 && os.Args[2] == "tls" {
		own := certificate.SelfSigned()
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(&own)))
	}
	server := grpc.NewServer(options...)
	metrics := interop.NewTestServerOptions{MetricsRecorder: orca.NewServerMetricsRecorder()}
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer(metrics))
	checked := health.NewServer()
	checked.SetServingStatus("ready", healthgrpc.HealthCheckResponse_SERVING)
	checked.SetServingStatus("broken", healthgrpc.HealthCheckResponse_NOT_SERVING)
	healthgrpc.RegisterHealthServer(server, checked)
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM)
	go func() {
		<-stops
		server.GracefulStop()
	}()
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

// Prints what the server learned of a call.
func report(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	line := "no deadline"
	if deadline, ok := stream.Context().Deadline(); ok {
		line = fmt.Sprint("deadline in ", time.Until(deadline).Round(time.Minute))
	}
	err := handler(service, stream)
	if stream.Context().Err() != nil {
		line += ", the client left"
	}
	if strings.HasSuffix(info.FullMethod, "/FullDuplexCall") {
		fmt.Println(line)
	}
	return err
}
