#!/usr/bin/env python3
"""A collector of traces (OTLP over HTTP): decodes requests with OpenTelemetry's own definitions, and prints their spans.

Usage: trace_collector.py STATUS... The first requests get these statuses, further ones 200. Prints `port N`, and then a line of
JSON for each request.
"""
import http.server
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

STATUSES = [int(status) for status in sys.argv[1:]]


def value_of(value):
    return getattr(value, value.WhichOneof("value"))


def attributes_of(owner):
    found = {attribute.key: value_of(attribute.value) for attribute in owner.attributes}
    assert len(found) == len(owner.attributes), "an attribute occurs twice"
    return found


def span_of(span):
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "flags": span.flags,
        "began": span.start_time_unix_nano,
        "ended": span.end_time_unix_nano,
        "status": span.status.code,
        "message": span.status.message,
        "attributes": attributes_of(span),
    }


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = STATUSES.pop(0) if STATUSES else 200
        line = {"status": status, "path": self.path, "fields": {name.lower(): value for name, value in self.headers.items()}}
        request = ExportTraceServiceRequest.FromString(body)
        (resource,) = request.resource_spans
        (scope,) = resource.scope_spans
        for message in (request, resource, resource.resource, scope, scope.scope, *scope.spans):
            assert len(UnknownFieldSet(message)) == 0, "a field that the definitions do not know"
        line["resource"] = attributes_of(resource.resource)
        line["scope"] = [scope.scope.name, scope.schema_url]
        line["spans"] = [span_of(span) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString() if status == 200 else b""
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        if status == 503:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(answer)
        print(json.dumps(line), flush=True)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print("port", server.server_address[1], flush=True)
server.serve_forever()
