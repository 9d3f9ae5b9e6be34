// A mini POS for orderbridge. Java 11 or newer and a JDBC driver for SQLite (org.xerial:sqlite-jdbc).
//
//   java -cp sqlite-jdbc.jar Pos.java DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

public class Pos {
    static final int LOOK_MS = 500;
    static final int READY_IN_MINUTES = 25;
    static final int OUT_OF_STOCK = 1; // delivery_cancel_reasons

    interface Work {
        void run() throws SQLException;
    }

    final Connection db;
    final long foodId;
    final Map<Long, String> waiting = new LinkedHashMap<>(); // our rows without a verdict: id, and what we call it

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("busy_timeout", "5000"); // wait that long for the daemon's transactions
        properties.setProperty("transaction_mode", "IMMEDIATE"); // a deferred one fails at once beside another writer
        try (Connection db = DriverManager.getConnection("jdbc:sqlite:" + arguments[0], properties)) {
            int orders = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 0;
            new Pos(db, Long.parseLong(arguments[2])).run(arguments[1], orders);
        }
    }

    Pos(Connection db, long foodId) {
        this.db = db;
        this.foodId = foodId;
    }

    void run(String account, int orders) throws Exception {
        inTransaction(() -> ask("deactivate_food " + foodId, "deactivate_food", "food_id", foodId, "account", account));
        int taken = 0;
        while (true) {
            taken += takeNew();
            showVerdicts();
            showChanged();
            if (orders > 0 && taken >= orders && waiting.isEmpty()) {
                return;
            }
            Thread.sleep(LOOK_MS);
        }
    }

    /** Print each new order, then say that we have it and what becomes of it, in one transaction. */
    int takeNew() throws SQLException {
        List<Map<String, Object>> fresh = rows(
            "SELECT payment_key, revision, order_number, status, payment_method,"
                + " COALESCE(ROUND(total, 2), 0) AS total, problem FROM delivery_new_orders ORDER BY received_utc");
        for (Map<String, Object> order : fresh) {
            Object key = order.get("payment_key");
            String reference = "A-" + order.get("order_number");
            double total = ((Number) order.get("total")).doubleValue();
            System.out.printf("new %s: %.2f %s%n", reference, total, order.get("payment_method"));
            if (order.get("problem") != null) {
                System.out.println("  look at it in the service's panel: " + order.get("problem"));
            }
            boolean soldOut = false;
            for (Map<String, Object> item : rows("SELECT quantity, name, food_id FROM delivery_order_items"
                + " WHERE payment_key = ? ORDER BY line_no", key)) {
                System.out.println("  " + item.get("quantity") + " x " + item.get("name"));
                soldOut |= item.get("food_id") != null && ((Number) item.get("food_id")).longValue() == foodId;
            }
            boolean cancel = soldOut;
            inTransaction(() -> {
                write("UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?",
                    order.get("revision"), reference, key);
                if (!"RECEIVED".equals(order.get("status"))) {
                    return; // somebody has answered the customer already
                }
                if (cancel) {
                    ask("cancel " + reference, "cancel", "payment_key", key, "reason_id", OUT_OF_STOCK);
                } else {
                    ask("accept " + reference, "accept", "payment_key", key, "preparing_time", READY_IN_MINUTES);
                }
            });
        }
        return fresh.size();
    }

    /** A row in the outbox. A constraint that it breaks is an error of this program, and throws. */
    void ask(String words, String action, String about, Object id, String argument, Object value) throws SQLException {
        write("INSERT INTO delivery_actions (action, created_by, " + about + ", " + argument
            + ") VALUES (?, 'mini POS', ?, ?)", action, id, value);
        Number written = (Number) rows("SELECT last_insert_rowid() AS id").get(0).get("id");
        waiting.put(written.longValue(), words);
    }

    /** Show what became of the orders that we have, and note the revision that we have shown. */
    void showChanged() throws SQLException {
        for (Map<String, Object> order : rows(
            "SELECT payment_key, revision, pos_reference, status, last_change"
                + " FROM delivery_changed_orders ORDER BY changed_utc")) {
            System.out.println("changed " + order.get("pos_reference") + ": " + order.get("status")
                + " (" + order.get("last_change") + ")");
            inTransaction(() -> write("UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?",
                order.get("revision"), order.get("payment_key")));
        }
    }

    /** Tell the cashier how each row ended. */
    void showVerdicts() throws SQLException {
        for (Long id : new ArrayList<>(waiting.keySet())) {
            for (Map<String, Object> row : rows("SELECT state, error_text FROM delivery_actions"
                + " WHERE id = ? AND state NOT IN ('pending', 'sending')", id)) {
                String text = row.get("error_text") == null ? "" : " " + row.get("error_text");
                System.out.println("verdict " + waiting.remove(id) + ": " + row.get("state") + text);
            }
        }
    }

    void inTransaction(Work work) throws SQLException {
        db.setAutoCommit(false);
        try {
            work.run();
            db.commit();
        } catch (SQLException error) {
            db.rollback();
            throw error;
        } finally {
            db.setAutoCommit(true);
        }
    }

    void write(String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = prepared(sql, values)) {
            statement.executeUpdate();
        }
    }

    List<Map<String, Object>> rows(String sql, Object... values) throws SQLException {
        List<Map<String, Object>> rows = new ArrayList<>();
        try (PreparedStatement statement = prepared(sql, values); ResultSet result = statement.executeQuery()) {
            while (result.next()) {
                Map<String, Object> row = new LinkedHashMap<>();
                for (int i = 1; i <= result.getMetaData().getColumnCount(); i++) {
                    row.put(result.getMetaData().getColumnLabel(i), result.getObject(i));
                }
                rows.add(row);
            }
        }
        return rows;
    }

    PreparedStatement prepared(String sql, Object... values) throws SQLException {
        PreparedStatement statement = db.prepareStatement(sql);
        for (int i = 0; i < values.length; i++) {
            statement.setObject(i + 1, values[i]);
        }
        return statement;
    }
}
