package c1000k;

import io.undertow.Handlers;
import io.undertow.UndertowOptions;
import io.undertow.websockets.core.AbstractReceiveListener;
import io.undertow.websockets.core.WebSocketChannel;
import io.undertow.websockets.core.WebSockets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.xnio.Options;

/** One I/O thread. */
public final class Undertow {
    private Undertow() {}

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        Set<WebSocketChannel> clients = ConcurrentHashMap.newKeySet();
        io.undertow.Undertow.builder()
            .addHttpListener(port, "127.0.0.1")
            .setIoThreads(1)
            .setWorkerThreads(1)
            .setSocketOption(Options.BACKLOG, 65535)
            .setSocketOption(Options.TCP_NODELAY, true)
            .setServerOption(UndertowOptions.NO_REQUEST_TIMEOUT, -1)
            .setHandler(Handlers.websocket((exchange, channel) -> {
                clients.add(channel);
                channel.addCloseTask(clients::remove);
                channel.getReceiveSetter().set(new AbstractReceiveListener() {});
                channel.resumeReceives();
            }))
            .build()
            .start();
        Publications.serve(port + 1, text -> {
            for (WebSocketChannel client : clients) {
                WebSockets.sendText(text, client, null);
            }
        }, clients::size);
    }
}
