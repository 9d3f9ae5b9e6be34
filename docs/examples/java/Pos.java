// A mini POS for orderbridge. Java 11 or newer and a JDBC driver for SQLite (org.xerial:sqlite-jdbc).
//
//   java -cp sqlite-jdbc.jar Pos.java DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped. Several may run on one file, and each may be stopped at any moment.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

public class Pos {
    static final int LOOK_MS = 500;
    static final int READY_IN_MINUTES = 25;
    static final int OUT_OF_STOCK = 1; // delivery_cancel_reasons

    interface Work {
        int run() throws SQLException;
    }

    final Connection db;
    final long foodId;
    final Set<Object> waiting = new LinkedHashSet<>(); // the ids of our rows without a verdict

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
        showOpen();
        inTransaction(() -> write("INSERT INTO delivery_actions (action, account, food_id, created_by)"
            + " VALUES ('deactivate_food', ?, ?, 'mini POS')", account, foodId));
        // An earlier run's rows are among them.
        for (Map<String, Object> row : rows("SELECT id FROM delivery_actions"
            + " WHERE created_by = 'mini POS' AND state IN ('pending', 'sending')")) {
            waiting.add(row.get("id"));
        }
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

    /** An earlier run may have stopped before it had printed what it took over: show it again. */
    void showOpen() throws SQLException {
        for (Map<String, Object> order : rows(
            "SELECT * FROM delivery_open_orders WHERE pos_reference LIKE 'A-%' ORDER BY received_utc, payment_key")) {
            System.out.println("open " + order.get("pos_reference") + ": " + order.get("status"));
            show(order);
        }
    }

    /** Take each new order over and ask for what becomes of it, in one transaction. Only then print it. */
    int takeNew() throws SQLException {
        int taken = 0;
        for (Map<String, Object> order : rows("SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key")) {
            Object key = order.get("payment_key");
            String reference = "A-" + order.get("order_number");
            boolean soldOut = !rows("SELECT 1 FROM delivery_order_items WHERE payment_key = ? AND food_id = ?",
                key, foodId).isEmpty();
            int changed = inTransaction(() -> {
                int updated = write("UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?"
                    + " WHERE payment_key = ? AND pos_revision = 0", order.get("revision"), reference, key);
                if (updated == 0 || !"RECEIVED".equals(order.get("status"))) {
                    return updated; // the customer has been answered already
                }
                if (soldOut) {
                    ask("cancel", key, "reason_id", OUT_OF_STOCK);
                } else {
                    ask("accept", key, "preparing_time", READY_IN_MINUTES);
                }
                return updated;
            });
            if (changed == 0) {
                continue; // another till has it, and prints it
            }
            System.out.println("new " + reference);
            show(order);
            taken++;
        }
        return taken;
    }

    /** What to collect, what to cook, and what else to know. */
    void show(Map<String, Object> order) throws SQLException {
        Number due = (Number) order.get("amount_due"); // NULL is no 0: nobody knows
        String money = due == null ? "ask what to collect" : String.format("collect %.2f", due.doubleValue());
        System.out.println("  " + money + ", " + said(order.get("payment_method")));
        showIfAny("  not now: for ", order.get("scheduled_for"));
        showIfAny("  look at it in the service's panel: ", order.get("problem"));
        showIfAny("  note: ", order.get("note"));
        Object key = order.get("payment_key");
        for (Map<String, Object> item : rows(
            "SELECT * FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no", key)) {
            System.out.println("  " + said(item.get("quantity")) + " x " + said(item.get("name")));
            for (Map<String, Object> option : rows("SELECT * FROM delivery_order_item_options"
                + " WHERE payment_key = ? AND line_no = ? ORDER BY option_no", key, item.get("line_no"))) {
                System.out.println("    " + said(option.get("operation")) + " " + said(option.get("group_name"))
                    + ": " + said(option.get("option_name")));
            }
            showIfAny("    note: ", item.get("note"));
        }
    }

    static void showIfAny(String words, Object value) {
        if (value != null && !"".equals(value)) {
            System.out.println(words + value);
        }
    }

    /** NULL: the service did not say. */
    static Object said(Object value) {
        return value == null ? "?" : value;
    }

    /** A row in the outbox. What was asked for under the same request_id is not asked for again. */
    void ask(String action, Object key, String argument, int value) throws SQLException {
        String request = action + "-" + key;
        if (rows("SELECT 1 FROM delivery_actions WHERE request_id = ?", request).isEmpty()) {
            write("INSERT INTO delivery_actions (request_id, action, payment_key, " + argument
                + ", created_by) VALUES (?, ?, ?, ?, 'mini POS')", request, action, key, value);
        }
        waiting.add(rows("SELECT id FROM delivery_actions WHERE request_id = ?", request).get(0).get("id"));
    }

    /** Show what became of the orders that we have, and note the revision that we have shown. */
    void showChanged() throws SQLException {
        for (Map<String, Object> order : rows(
            "SELECT * FROM delivery_changed_orders WHERE pos_reference LIKE 'A-%' ORDER BY changed_utc")) {
            System.out.println("changed " + order.get("pos_reference") + ": " + order.get("status")
                + " (" + order.get("last_change") + ")");
            if (order.get("ended_utc") != null) { // what is over is never printed to be cooked
                System.out.println("  STOP: " + order.get("ended_by"));
            } else if ((Integer) order.get("contents_revision") > (Integer) order.get("pos_revision")) {
                show(order); // other items, notes or money than we have printed
            }
            inTransaction(() -> write("UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?",
                order.get("revision"), order.get("payment_key")));
        }
    }

    /** Tell the cashier how each row ended. */
    void showVerdicts() throws SQLException {
        for (Object id : new ArrayList<>(waiting)) {
            for (Map<String, Object> row : rows("SELECT action, food_id, pos_reference, state, error_text"
                + " FROM delivery_actions LEFT JOIN delivery_orders"
                + " ON delivery_orders.payment_key = delivery_actions.payment_key"
                + " WHERE id = ? AND state NOT IN ('pending', 'sending')", id)) {
                Object about = row.get("pos_reference") == null ? row.get("food_id") : row.get("pos_reference");
                String text = row.get("error_text") == null ? "" : " " + row.get("error_text");
                System.out.println("verdict " + row.get("action") + " " + about + ": " + row.get("state") + text);
                waiting.remove(id);
            }
        }
    }

    int inTransaction(Work work) throws SQLException {
        db.setAutoCommit(false);
        try {
            int result = work.run();
            db.commit();
            return result;
        } catch (SQLException error) {
            db.rollback();
            throw error;
        } finally {
            db.setAutoCommit(true);
        }
    }

    /** How many rows it wrote. */
    int write(String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = prepared(sql, values)) {
            return statement.executeUpdate();
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
