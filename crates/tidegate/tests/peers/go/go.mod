module tidegate-clients

go 1.19

require (
	github.com/gorilla/websocket v1.5.0
	golang.org/x/net v0.17.0
)

require golang.org/x/text v0.13.0 // indirect
