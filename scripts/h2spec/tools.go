//go:build tools

// Names h2spec, so that go.mod and go.sum pin it and what it needs. Go 1.19 (Debian 12) can build these versions.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
