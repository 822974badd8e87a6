package c1000k;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.thread.QueuedThreadPool;
import org.eclipse.jetty.websocket.api.Callback;
import org.eclipse.jetty.websocket.api.Session;
import org.eclipse.jetty.websocket.server.WebSocketUpgradeHandler;

/** One acceptor and one selector; Jetty's own WebSocket API, without servlets. */
public final class Jetty {
    private static final Set<Session> CLIENTS = ConcurrentHashMap.newKeySet();

    private Jetty() {}

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        Server server = new Server(new QueuedThreadPool(16));
        ServerConnector connector = new ServerConnector(server, 1, 1);
        connector.setHost("127.0.0.1");
        connector.setPort(port);
        connector.setAcceptQueueSize(65535);
        server.addConnector(connector);
        server.setHandler(WebSocketUpgradeHandler.from(server, container -> {
            container.setIdleTimeout(Duration.ZERO);
            container.addMapping("/*", (request, response, callback) -> new Client());
        }));
        server.start();
        Publications.serve(port + 1, text -> {
            for (Session client : CLIENTS) {
                client.sendText(text, Callback.NOOP);
            }
        }, CLIENTS::size);
    }

    public static final class Client extends Session.Listener.AbstractAutoDemanding {
        @Override
        public void onWebSocketOpen(Session session) {
            super.onWebSocketOpen(session);
            CLIENTS.add(session);
        }

        @Override
        public void onWebSocketClose(int code, String reason, Callback callback) {
            CLIENTS.remove(getSession());
            callback.succeed();
        }
    }
}
