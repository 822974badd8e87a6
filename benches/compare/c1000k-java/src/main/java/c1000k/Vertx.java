package c1000k;

import io.vertx.core.Context;
import io.vertx.core.VertxOptions;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.http.ServerWebSocket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** One event loop over epoll, on which the broadcast runs, too. */
public final class Vertx {
    private Vertx() {}

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        Set<ServerWebSocket> clients = ConcurrentHashMap.newKeySet();
        io.vertx.core.Vertx vertx = io.vertx.core.Vertx.vertx(
            new VertxOptions().setPreferNativeTransport(true).setEventLoopPoolSize(1));
        if (!vertx.isNativeTransportEnabled()) {
            throw new IllegalStateException("the native transport is missing", vertx.unavailableNativeTransportCause());
        }
        HttpServerOptions options = new HttpServerOptions()
            .setAcceptBacklog(65535)
            .setTcpNoDelay(true)
            .setPerMessageWebSocketCompressionSupported(false)
            .setPerFrameWebSocketCompressionSupported(false);
        Context context = vertx.getOrCreateContext();
        context.runOnContext(unused -> vertx.createHttpServer(options)
            .webSocketHandler(client -> {
                clients.add(client);
                client.closeHandler(end -> clients.remove(client));
            })
            .listen(port, "127.0.0.1")
            .onFailure(Throwable::printStackTrace));
        Publications.serve(port + 1, text -> context.runOnContext(unused -> {
            for (ServerWebSocket client : clients) {
                client.writeTextMessage(text);
            }
        }), clients::size);
    }
}
