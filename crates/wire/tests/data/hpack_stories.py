#!/usr/bin/env python3
"""Makes hpack_stories.txt: the same header lists, encoded by three independent HPACK encoders.

Encoders: Python's hpack (import hpack), Go's golang.org/x/net/http2/hpack (go), and nghttp2 inside Node's
http2 module (node). Usage: hpack_stories.py > hpack_stories.txt

Lines: "list", then the fields of the list, "name TAB value", "!" before the name of a sensitive field.
"encoder NAME" begins a story: "block HEX" is the next list encoded, "limit N" is a table limit that the
encoder learned before the next block.

hpack_stories.py FOLDER TARGET converts the JSON files of github.com/http2jp/hpack-test-case to this format,
for the ignored test in hpack_stories.rs.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

LISTS = 24
# Before the list with this number the encoder learns this limit. Two limits follow each other directly.
LIMITS = {5: [0], 8: [4096], 12: [256], 16: [0, 1024], 20: [4096]}

AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0",
    "curl/8.16.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0",
]
PATHS = ["/", "/index.html", "/api/v1/items?page=2&sort=-price", "/img/logo.svg", "/search?q=a%20b+c"]


def field_lists():
    draw = random.Random(7541)
    lists = []
    for number in range(LISTS):
        fields = [
            (":method", draw.choice(["GET", "GET", "POST", "PUT"]), False),
            (":scheme", draw.choice(["https", "http"]), False),
            (":authority", draw.choice(["example.com", "www.example.com:8443"]), False),
            (":path", draw.choice(PATHS) if number % 3 else f"/item/{draw.getrandbits(40):x}", False),
            ("user-agent", AGENTS[number % 3], False),
            ("accept", draw.choice(["*/*", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"]), False),
            ("accept-encoding", draw.choice(["gzip, deflate", "gzip, deflate, br, zstd"]), False),
            ("x-request-id", f"{draw.getrandbits(128):032x}", False),
        ]
        if number % 2:
            fields.append(("authorization", f"Bearer {draw.getrandbits(96):024x}", True))
        if number % 4 == 1:
            fields.append(("x-empty", "", False))
            fields.append(("x-odd", "".join(chr(draw.randrange(33, 127)) for _ in range(40)), False))
        if number % 5 == 2:
            fields.append(("x-long", "long-value~" * draw.randrange(8, 14), False))
        fields.append(("cookie", f"session={draw.getrandbits(64):x}; theme={draw.choice('ab')}", number % 6 == 0))
        lists.append(fields)
    return lists


def steps(lists):
    for number, fields in enumerate(lists):
        for limit in LIMITS.get(number, []):
            yield "limit", limit
        yield "block", fields


def encode_python(lists):
    import hpack

    encoder = hpack.Encoder()
    for kind, what in steps(lists):
        if kind == "limit":
            encoder.header_table_size = what
            yield f"limit {what}"
        else:
            fields = [(name.encode(), value.encode(), sensitive) for name, value, sensitive in what]
            yield "block " + encoder.encode(fields, huffman=True).hex()


GO = """package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/net/http2/hpack"
)

func main() {
	var steps []struct {
		Kind   string
		Limit  uint32
		Fields []hpack.HeaderField
	}
	if err := json.NewDecoder(os.Stdin).Decode(&steps); err != nil {
		panic(err)
	}
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	for _, step := range steps {
		if step.Kind == "limit" {
			encoder.SetMaxDynamicTableSizeLimit(step.Limit)
			encoder.SetMaxDynamicTableSize(step.Limit)
			fmt.Println("limit", step.Limit)
			continue
		}
		out.Reset()
		for _, field := range step.Fields {
			if err := encoder.WriteField(field); err != nil {
				panic(err)
			}
		}
		fmt.Printf("block %x\\n", out.Bytes())
	}
}
"""


def encode_go(lists):
    plan = []
    for kind, what in steps(lists):
        if kind == "limit":
            plan.append({"Kind": kind, "Limit": what})
        else:
            fields = [{"Name": name, "Value": value, "Sensitive": secret} for name, value, secret in what]
            plan.append({"Kind": kind, "Fields": fields})
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "main.go"), "w") as file:
            file.write(GO)
        run = dict(cwd=folder, check=True, capture_output=True, text=True)
        subprocess.run(["go", "mod", "init", "stories"], **run)
        subprocess.run(["go", "get", "golang.org/x/net/http2/hpack@latest"], **run)
        return subprocess.run(["go", "run", "."], input=json.dumps(plan), **run).stdout.splitlines()


# A client over a stream that records what the client sends; the SETTINGS of a server are written into it.
NODE = """
const http2 = require('http2'), { Duplex } = require('stream');
const plan = JSON.parse(require('fs').readFileSync(0, 'utf8'));
let sent = Buffer.alloc(0);
const wire = new Duplex({ read() {}, write(chunk, _, done) { sent = Buffer.concat([sent, chunk]); done(); } });
const client = http2.connect('http://example.com', { createConnection: () => wire });
client.on('error', (e) => { throw e; });
const settings = (entries) => {
  const payload = Buffer.concat(entries.map((value) => {
    const entry = Buffer.alloc(6);
    entry.writeUInt16BE(1, 0);
    entry.writeUInt32BE(value, 2);
    return entry;
  }));
  wire.push(Buffer.concat([Buffer.from([0, 0, payload.length, 4, 0, 0, 0, 0, 0]), payload]));
};
const pause = () => new Promise((done) => setTimeout(done, 20));
(async () => {
  settings([]);
  await pause();
  let at = 24;
  for (const step of plan) {
    if (step.Kind === 'limit') {
      settings([step.Limit]);
      await pause();
      console.log('limit ' + step.Limit);
      continue;
    }
    const headers = {};
    for (const f of step.Fields) headers[f.Name] = f.Value;
    headers[http2.sensitiveHeaders] = step.Fields.filter((f) => f.Sensitive).map((f) => f.Name);
    client.request(headers, { endStream: true }).on('error', () => {});
    await pause();
    let block = Buffer.alloc(0);
    while (at < sent.length) {
      const length = sent.readUIntBE(at, 3), type = sent[at + 3], flags = sent[at + 4];
      const start = at + 9 + (type === 1 && flags & 32 ? 5 : 0);
      if (type === 1 || type === 9) block = Buffer.concat([block, sent.subarray(start, at + 9 + length)]);
      at += 9 + length;
    }
    console.log('block ' + block.toString('hex'));
  }
  process.exit(0);
})();
"""


def encode_node(lists):
    plan = []
    for kind, what in steps(lists):
        if kind == "limit":
            plan.append({"Kind": kind, "Limit": what})
        else:
            fields = [{"Name": name, "Value": value, "Sensitive": secret} for name, value, secret in what]
            plan.append({"Kind": kind, "Fields": fields})
    run = subprocess.run(["node", "-e", NODE], input=json.dumps(plan), check=True, capture_output=True, text=True)
    return run.stdout.splitlines()


def convert(folder, target):
    """Writes a file of the target folder for each JSON file below `folder`."""
    for path in sorted(pathlib.Path(folder).glob("*/story_*.json")):
        lists, story = [], []
        for case in json.loads(path.read_text())["cases"]:
            lists.append("list")
            lists += [f"{name}\t{value}" for field in case["headers"] for name, value in field.items()]
            if case.get("header_table_size"):
                story.append(f"limit {case['header_table_size']}")
            if "wire" in case:
                story.append(f"block {case['wire']}")
        head = ["encoder " + path.parent.name] if story else []
        out = pathlib.Path(target) / f"{path.parent.name}-{path.stem}.txt"
        out.write_text("\n".join(lists + head + story) + "\n")


def main():
    if len(sys.argv) == 3:
        return convert(sys.argv[1], sys.argv[2])
    lists = field_lists()
    print("# Made by hpack_stories.py; its first lines explain the format.")
    for fields in lists:
        print("list")
        for name, value, sensitive in fields:
            print(f"{'!' if sensitive else ''}{name}\t{value}")
    for encoder, encode in [("python", encode_python), ("go", encode_go), ("nghttp2", encode_node)]:
        print("encoder", encoder)
        for line in encode(lists):
            print(line)


main()
