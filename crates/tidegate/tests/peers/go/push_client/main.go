// Tests a push hub with Centrifugo's client library for Go: push_client ADDRESS json|protobuf. Prints a word for each
// part that works.
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

const (
	key    = "0123456789abcdef"
	room   = "chat:room"
	limit  = 60 * time.Second
	forged = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJldmUifQ.AAAA"
)

var (
	address    = os.Args[1]
	isProtobuf = os.Args[2] == "protobuf"
)

func main() {
	log.SetFlags(log.Lshortfile)
	deadline := time.AfterFunc(limit, func() { log.Fatal("timed out") })
	defer deadline.Stop()
	exchange()
	renewTokens()
	rights()
	deltas()
	filters()
}

func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func check(holds bool, what string, values ...any) {
	if !holds {
		log.Output(2, what+": "+fmt.Sprint(values...))
		os.Exit(1)
	}
}

type claims map[string]any

func token(claims claims) string {
	text, err := json.Marshal(claims)
	must(err)
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(text)
	mac := hmac.New(sha256.New, []byte("a-secret-of-the-test"))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

// So many seconds from now.
func after(seconds int64) int64 { return time.Now().Unix() + seconds }

func api(method string, body any) {
	text, err := json.Marshal(body)
	must(err)
	request, err := http.NewRequest("POST", "http://"+address+"/push/api/"+method, bytes.NewReader(text))
	must(err)
	request.Header.Set("X-API-Key", key)
	response, err := http.DefaultClient.Do(request)
	must(err)
	defer response.Body.Close()
	var reply struct{ Error any }
	must(json.NewDecoder(response.Body).Decode(&reply))
	check(reply.Error == nil, method, reply.Error)
}

func publish(from, to int) {
	for n := from; n <= to; n++ {
		api("publish", map[string]any{"channel": room, "data": map[string]int{"n": n}})
	}
}

// A client, and its newest connection.
type client struct {
	*centrifuge.Client
	mutex        sync.Mutex
	connection   net.Conn
	connected    chan centrifuge.ConnectedEvent
	disconnected chan centrifuge.DisconnectedEvent
	failed       chan error
}

func newClient(hub string, config centrifuge.Config) *client {
	one := &client{
		connected:    make(chan centrifuge.ConnectedEvent, 100),
		disconnected: make(chan centrifuge.DisconnectedEvent, 100),
		failed:       make(chan error, 100),
	}
	config.MinReconnectDelay, config.MaxReconnectDelay = 50*time.Millisecond, 200*time.Millisecond
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.NetDialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, network, address)
		one.mutex.Lock()
		defer one.mutex.Unlock()
		one.connection = connection
		return connection, err
	}
	endpoint := "ws://" + address + "/" + hub + "/connection/websocket"
	if isProtobuf {
		one.Client = centrifuge.NewProtobufClient(endpoint, config)
	} else {
		one.Client = centrifuge.NewJsonClient(endpoint, config)
	}
	one.OnConnected(func(event centrifuge.ConnectedEvent) { one.connected <- event })
	one.OnDisconnected(func(event centrifuge.DisconnectedEvent) { one.disconnected <- event })
	one.OnError(func(event centrifuge.ErrorEvent) { one.failed <- event.Error })
	return one
}

func (one *client) cut() {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	must(one.connection.Close())
}

// A subscription, and what it has received.
type subscription struct {
	*centrifuge.Subscription
	subscribed   chan centrifuge.SubscribedEvent
	unsubscribed chan centrifuge.UnsubscribedEvent
	numbers      chan int
	joined, left chan string
	received     []int
}

func (one *client) subscription(channel string, config centrifuge.SubscriptionConfig) *subscription {
	made, err := one.NewSubscription(channel, config)
	must(err)
	sub := &subscription{
		Subscription: made,
		subscribed:   make(chan centrifuge.SubscribedEvent, 100),
		unsubscribed: make(chan centrifuge.UnsubscribedEvent, 100),
		numbers:      make(chan int, 1000),
		joined:       make(chan string, 100),
		left:         make(chan string, 100),
	}
	made.OnSubscribed(func(event centrifuge.SubscribedEvent) { sub.subscribed <- event })
	made.OnUnsubscribed(func(event centrifuge.UnsubscribedEvent) { sub.unsubscribed <- event })
	made.OnJoin(func(event centrifuge.JoinEvent) { sub.joined <- event.User })
	made.OnLeave(func(event centrifuge.LeaveEvent) { sub.left <- event.User })
	made.OnPublication(func(event centrifuge.PublicationEvent) { sub.numbers <- number(event.Publication) })
	return sub
}

func number(publication centrifuge.Publication) int {
	var data struct{ N int }
	must(json.Unmarshal(publication.Data, &data))
	return data.N
}

// Waits for the publications up to this number, which must be all of them, in order.
func (sub *subscription) expect(to int) {
	for len(sub.received) < to {
		sub.received = append(sub.received, <-sub.numbers)
		check(sub.received[len(sub.received)-1] == len(sub.received), "order", sub.received)
	}
}

func waitFor(users chan string, user string) {
	for <-users != user {
	}
}

// The code of an error of the hub.
func code(err error) uint32 {
	var reply *centrifuge.Error
	if errors.As(err, &reply) {
		return reply.Code
	}
	log.Output(2, fmt.Sprintf("no error of the hub: %v", err))
	os.Exit(1)
	return 0
}

func exchange() {
	alice := newClient("push", centrifuge.Config{Token: token(claims{"sub": "alice", "info": claims{"name": "Alice"}})})
	bob := newClient("push", centrifuge.Config{Token: token(claims{"sub": "bob"})})
	must(alice.Connect())
	event := <-alice.connected
	check(len(event.ClientID) == 36, "a name of the client", event.ClientID)
	mine := alice.subscription(room, centrifuge.SubscriptionConfig{})
	must(mine.Subscribe())
	subscribed := <-mine.subscribed
	check(subscribed.Recoverable && subscribed.Positioned, "recovery", subscribed)
	must(bob.Connect())
	theirs := bob.subscription(room, centrifuge.SubscriptionConfig{})
	must(theirs.Subscribe())
	<-theirs.subscribed
	waitFor(mine.joined, "bob")
	fmt.Println("subscribe")

	publish(1, 20)
	_, err := theirs.Publish(context.Background(), []byte(`{"n":21}`))
	must(err)
	mine.expect(21)
	theirs.expect(21)
	fmt.Println("publish")
	readHistory(mine)
	readPresence(mine)

	must(bob.Disconnect())
	waitFor(mine.left, "bob")
	publish(22, 30)
	must(bob.Connect())
	again := <-theirs.subscribed
	check(again.WasRecovering && again.Recovered, "recovered", again)
	theirs.expect(30)
	publish(31, 40)
	bob.cut()
	publish(41, 90)
	check((<-theirs.subscribed).Recovered, "recovered after the cut")
	theirs.expect(90)
	fmt.Println("recovery")

	must(bob.Disconnect())
	publish(91, 200)
	must(bob.Connect())
	lost := <-theirs.subscribed
	check(lost.WasRecovering && !lost.Recovered, "told that messages are lost", lost)
	fmt.Println("lost")
	must(mine.Unsubscribe())
	alice.Close()
	bob.Close()
}

// Most messages come as patches of the previous message, even after a recovery.
func deltas() {
	erin := newClient("push", centrifuge.Config{Token: token(claims{"sub": "erin"})})
	must(erin.Connect())
	document := erin.subscription("doc:a", centrifuge.SubscriptionConfig{Delta: centrifuge.DeltaTypeFossil})
	must(document.Subscribe())
	<-document.subscribed
	for n := 1; n <= 60; n++ {
		text := ""
		if n%20 > 0 {
			text = strings.Repeat("the p\u00e4rt \U0001f30a that \"stays\" the same ", 20)
		}
		api("publish", map[string]any{"channel": "doc:a", "data": map[string]any{"n": n, "text": text}})
		if n == 30 {
			erin.cut()
		}
	}
	document.expect(60)
	erin.Close()
	fmt.Println("deltas")
}

// A filter selects messages by their tags.
func filters() {
	frank := newClient("push", centrifuge.Config{Token: token(claims{"sub": "frank"})})
	must(frank.Connect())
	odd := centrifuge.FilterEq("parity", "odd")
	document := frank.subscription("doc:own#erin,frank", centrifuge.SubscriptionConfig{TagsFilter: odd})
	must(document.Subscribe())
	<-document.subscribed
	for n := 1; n < 20; n++ {
		parity := map[string]string{"parity": []string{"even", "odd"}[n%2]}
		api("publish", map[string]any{"channel": document.Channel, "data": map[string]int{"n": n}, "tags": parity})
	}
	for n := 1; n < 20; n += 2 {
		found := <-document.numbers
		check(found == n, "filtered", found, n)
	}
	frank.Close()
	fmt.Println("filters")
}

func readHistory(sub *subscription) {
	background := context.Background()
	history, err := sub.History(background, centrifuge.WithHistoryLimit(3), centrifuge.WithHistoryReverse(true))
	must(err)
	var numbers []int
	for _, publication := range history.Publications {
		numbers = append(numbers, number(publication))
	}
	check(fmt.Sprint(numbers) == "[21 20 19]" && history.Offset == 21, "history", numbers)
	check(history.Publications[0].Info.User == "bob", "publisher")
	since := &centrifuge.StreamPosition{Offset: 18, Epoch: history.Epoch}
	later, err := sub.History(background, centrifuge.WithHistoryLimit(2), centrifuge.WithHistorySince(since))
	must(err)
	check(len(later.Publications) == 2 && later.Publications[0].Offset == 19, "history since a position", later)
	since.Epoch = "other"
	_, err = sub.History(background, centrifuge.WithHistoryLimit(2), centrifuge.WithHistorySince(since))
	check(code(err) == 112, "history of another epoch", err)
	fmt.Println("history")
}

func readPresence(sub *subscription) {
	presence, err := sub.Presence(context.Background())
	must(err)
	var users []string
	for _, info := range presence.Clients {
		users = append(users, info.User+string(info.ConnInfo))
	}
	sort.Strings(users)
	check(strings.Join(users, " ") == `alice{"name":"Alice"} bob`, "presence", users)
	stats, err := sub.PresenceStats(context.Background())
	must(err)
	check(stats.NumClients == 2 && stats.NumUsers == 2, "counts", stats)
	fmt.Println("presence")
}

// Tokens of connections and subscriptions are renewed when they end.
func renewTokens() {
	asked, again := 0, make(chan struct{})
	spans := []int64{4, 1000}
	carol := newClient("push", centrifuge.Config{
		Token: token(claims{"sub": "carol", "exp": 1000}),
		GetToken: func(centrifuge.ConnectionTokenEvent) (string, error) {
			asked++
			if asked == 2 {
				close(again)
			}
			return token(claims{"sub": "carol", "exp": after(spans[min(asked, 2)-1])}), nil
		},
	})
	must(carol.Connect())
	<-carol.connected
	check(code(<-carol.failed) == 109, "an expired token")
	given, ready := 0, make(chan struct{})
	sub := carol.subscription("closed:own", centrifuge.SubscriptionConfig{
		GetToken: func(event centrifuge.SubscriptionTokenEvent) (string, error) {
			given++
			if given == 2 {
				close(ready)
			}
			return token(claims{"sub": "carol", "channel": event.Channel, "exp": after(spans[min(given, 2)-1])}), nil
		},
	})
	must(sub.Subscribe())
	<-sub.subscribed
	<-again
	<-ready
	_, err := sub.Publish(context.Background(), []byte("{}"))
	check(code(err) == 103 && carol.State() == centrifuge.StateConnected, "renewed", err)
	carol.Close()
	fmt.Println("tokens")
}

func rights() {
	for text, expected := range map[string]uint32{"": 3501, forged: 3500} {
		refused := newClient("push", centrifuge.Config{Token: text})
		must(refused.Connect())
		check((<-refused.disconnected).Code == expected, "refused", expected)
		refused.Close()
	}
	dave := newClient("push", centrifuge.Config{Token: token(claims{"sub": "dave"})})
	must(dave.Connect())
	for channel, expected := range map[string]uint32{"closed": 103, "unknown:a": 102, "$chat:own": 103} {
		denied := dave.subscription(channel, centrifuge.SubscriptionConfig{})
		must(denied.Subscribe())
		check((<-denied.unsubscribed).Code == expected, channel)
	}
	background := context.Background()
	_, err := dave.Publish(background, room, []byte("{}"))
	check(code(err) == 103, "publish", err)
	_, err = dave.History(background, room)
	check(code(err) == 103, "history", err)
	_, err = dave.Presence(background, "closed:a")
	check(code(err) == 108, "presence", err)
	_, err = dave.RPC(background, "method", []byte("{}"))
	check(code(err) == 108, "rpc", err)
	dave.Close()

	anonymous := newClient("open", centrifuge.Config{})
	must(anonymous.Connect())
	news := anonymous.subscription("news", centrifuge.SubscriptionConfig{})
	must(news.Subscribe())
	<-news.subscribed
	_, err = news.Publish(background, []byte(`{"n":1}`))
	must(err)
	news.expect(1)
	must(news.Unsubscribe())
	check((<-news.unsubscribed).Code == 0, "unsubscribed")
	anonymous.Close()
	fmt.Println("rights")
}
