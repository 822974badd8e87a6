package c1000k;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.glassfish.grizzly.http.server.HttpServer;
import org.glassfish.grizzly.http.server.NetworkListener;
import org.glassfish.grizzly.nio.transport.TCPNIOTransport;
import org.glassfish.grizzly.strategies.SameThreadIOStrategy;
import org.glassfish.grizzly.websockets.DataFrame;
import org.glassfish.grizzly.websockets.WebSocket;
import org.glassfish.grizzly.websockets.WebSocketAddOn;
import org.glassfish.grizzly.websockets.WebSocketApplication;
import org.glassfish.grizzly.websockets.WebSocketEngine;

/** One selector, which also runs the handlers. */
public final class Grizzly {
    private Grizzly() {}

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        Clients clients = new Clients();
        NetworkListener listener = new NetworkListener("clients", "127.0.0.1", port);
        TCPNIOTransport transport = listener.getTransport();
        transport.setIOStrategy(SameThreadIOStrategy.getInstance());
        transport.setSelectorRunnersCount(1);
        transport.setServerConnectionBackLog(65535);
        transport.setTcpNoDelay(true);
        listener.registerAddOn(new WebSocketAddOn());
        HttpServer server = new HttpServer();
        server.addListener(listener);
        WebSocketEngine.getEngine().register("", "/*", clients);
        server.start();
        Publications.serve(port + 1, text -> {
            for (WebSocket client : clients.open) {
                client.send(text);
            }
        }, clients.open::size);
        Thread.currentThread().join();
    }

    private static final class Clients extends WebSocketApplication {
        private final Set<WebSocket> open = ConcurrentHashMap.newKeySet();

        @Override
        public void onConnect(WebSocket client) {
            open.add(client);
        }

        @Override
        public void onClose(WebSocket client, DataFrame frame) {
            open.remove(client);
        }
    }
}
