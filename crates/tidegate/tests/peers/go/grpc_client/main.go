// Runs gRPC's interoperability tests: grpc_client URL. Prints a line for each test that passes. The tests end the
// process when they fail. Not here: tests that need accounts of a cloud, pick_first_unary (of balancers in clients), and
// orca_oob, whose server needs internals.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// The balancer of the test orca_per_rpc, which reads a trailer of each call.
const balancer = `{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}`

func main() {
	log.SetFlags(log.Lshortfile)
	deadline := time.AfterFunc(4*time.Minute, func() { log.Fatal("timed out") })
	defer deadline.Stop()
	ctx := context.Background()
	connection, reporting := dial(), dial(grpc.WithDefaultServiceConfig(balancer))
	client := testgrpc.NewTestServiceClient(connection)
	tests := []struct {
		name string
		run  func()
	}{
		{"empty_unary", func() { interop.DoEmptyUnaryCall(ctx, client) }},
		{"large_unary", func() { interop.DoLargeUnaryCall(ctx, client) }},
		{"client_streaming", func() { interop.DoClientStreaming(ctx, client) }},
		{"server_streaming", func() { interop.DoServerStreaming(ctx, client) }},
		{"ping_pong", func() { interop.DoPingPong(ctx, client) }},
		{"empty_stream", func() { interop.DoEmptyStream(ctx, client) }},
		{"timeout_on_sleeping_server", func() { interop.DoTimeoutOnSleepingServer(ctx, client) }},
		{"cancel_after_begin", func() { cancelAfterBegin(ctx, client) }},
		{"cancel_after_first_response", func() { interop.DoCancelAfterFirstResponse(ctx, client) }},
		{"status_code_and_message", func() { interop.DoStatusCodeAndMessage(ctx, client) }},
		{"special_status_message", func() { interop.DoSpecialStatusMessage(ctx, client) }},
		{"custom_metadata", func() { interop.DoCustomMetadata(ctx, client) }},
		{"unimplemented_method", func() { interop.DoUnimplementedMethod(ctx, connection) }},
		{"unimplemented_service", func() {
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(connection))
		}},
		{"orca_per_rpc", func() { interop.DoORCAPerRPCTest(ctx, testgrpc.NewTestServiceClient(reporting)) }},
		{"long_deadline", func() { longDeadline(ctx, client) }},
		{"short_deadline", func() { shortDeadline(ctx, client) }},
	}
	for _, test := range tests {
		test.run()
		fmt.Println(test.name)
	}
}

func dial(options ...grpc.DialOption) *grpc.ClientConn {
	scheme, address, _ := strings.Cut(os.Args[1], "://")
	trust := insecure.NewCredentials()
	if scheme == "https" {
		trust = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	connection, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(trust))...)
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

// A call that its client cancels before its first message. interop.DoCancelAfterBegin also closes its side, so that the
// server may answer before the client reads, and grpc-go then returns the answer.
func cancelAfterBegin(ctx context.Context, client testgrpc.TestServiceClient) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := client.StreamingInputCall(ctx)
	if err != nil {
		log.Fatal(err)
	}
	cancel()
	if err := stream.RecvMsg(new(testgrpc.StreamingInputCallResponse)); status.Code(err) != codes.Canceled {
		log.Fatalf("cancelled call: %v", err)
	}
}

// A call with a deadline that does not expire.
func longDeadline(ctx context.Context, client testgrpc.TestServiceClient) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	interop.DoPingPong(ctx, client)
}

// A call that has begun, and whose deadline expires while both sides wait.
func shortDeadline(ctx context.Context, client testgrpc.TestServiceClient) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		log.Fatal(err)
	}
	request := testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 10}}}
	if err := stream.Send(&request); err != nil {
		log.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil && status.Code(err) != codes.DeadlineExceeded {
		log.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
		log.Fatal(err)
	}
}
