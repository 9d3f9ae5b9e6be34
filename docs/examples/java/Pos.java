// A mini POS for orderbridge. Java 17 or newer and a JDBC driver for SQLite (org.xerial:sqlite-jdbc).
//
//   java -cp sqlite-jdbc.jar Pos.java DATABASE [--orders N]     the till, until it is stopped or has taken N orders over
//   java -cp sqlite-jdbc.jar Pos.java DATABASE VERB ARGUMENTS   what a person does, while the till runs
//
//   accept KEY MINUTES   cancel KEY REASON_ID   on_the_way KEY   complete KEY   withdraw KEY (what waits)
//   open RESTAURANT_ID   close RESTAURANT_ID   food_off FOOD_ID RESTAURANT_ID   food_on FOOD_ID RESTAURANT_ID
//   ticket KEY (all that the kitchen was told)   collect KEY (what the courier collects)
//
// The till takes orders over and accepts them. One with a food that was switched off is cancelled; one that is for
// later or has a `problem` waits for a person. It may be killed at any moment and goes on where it was: a ticket that
// may be on paper already is printed once more, with REPRINT on it. Several tills may run on one file.

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;

public class Pos {
    static final int LOOK_MS = 500;
    static final int READY_IN_MINUTES = 25;
    static final int OUT_OF_STOCK = 1; // delivery_cancel_reasons

    // What must not be forgotten. pos_prints: what the kitchen is told; its paper waits, is begun, or is out.
    // pos_asked: what we asked for and whose verdict nobody has seen.
    static final String[] TABLES = {
        """
        CREATE TABLE IF NOT EXISTS pos_prints (
            id INTEGER PRIMARY KEY, payment_key TEXT NOT NULL, revision INTEGER NOT NULL, kind TEXT NOT NULL,
            ticket TEXT NOT NULL, paper TEXT NOT NULL DEFAULT 'waits', UNIQUE (payment_key, revision, kind))""",
        "CREATE TABLE IF NOT EXISTS pos_asked (request_id TEXT PRIMARY KEY)",
    };
    static final String OURS = "pos_reference LIKE 'A-%'"; // a till notes and shows the changes of its own orders only
    // is_later: over an hour ahead, by this computer's time zone. NULL: not scheduled, or no time that can be read.
    static final String ORDERS = """
        SELECT *, datetime(scheduled_for) > datetime('now', 'localtime', '+60 minutes') AS is_later,
            CASE WHEN amount_due IS NULL THEN 'ask' ELSE printf('%.2f', amount_due) END AS collect""";
    // Whether a food of the order was last switched off, and not on.
    static final String SOLD_OUT = """
        SELECT 1 FROM delivery_order_items AS item WHERE payment_key = ? AND 'deactivate_food' = (
            SELECT action FROM delivery_actions WHERE food_id = item.food_id AND state IN ('pending', 'sending', 'done')
                AND restaurant_id IN (SELECT id FROM delivery_restaurants WHERE account = ?) ORDER BY id DESC LIMIT 1)""";
    // Each item, its options below it, then its note. NULL: the platform did not say.
    static final String LINES = """
        SELECT line FROM (
            SELECT payment_key, line_no, 1 AS part, 0 AS option_no,
                '  ' || COALESCE(quantity, '?') || ' x ' || COALESCE(name, '?') AS line FROM delivery_order_items
            UNION ALL SELECT payment_key, line_no, 2, option_no, '    ' || COALESCE(operation, '?') || ' '
                || COALESCE(group_name, '?') || ': ' || COALESCE(option_name, '?') FROM delivery_order_item_options
            UNION ALL SELECT payment_key, line_no, 3, 0, '    note: ' || note FROM delivery_order_items WHERE note <> ''
        ) WHERE payment_key = ? ORDER BY line_no, part, option_no""";
    static final String LAMPS = """
        SELECT lamp, account, sentence, remedy FROM delivery_lamp
        UNION ALL SELECT 'red', '?', 'orderbridge has not run yet', NULL WHERE NOT EXISTS (SELECT 1 FROM delivery_lamp)""";
    static final Map<String, List<String>> VERBS = Map.of( // the action and the columns that its arguments fill
        "accept", List.of("accept", "payment_key", "preparing_time"),
        "cancel", List.of("cancel", "payment_key", "reason_id"),
        "on_the_way", List.of("on_the_way", "payment_key"),
        "complete", List.of("complete", "payment_key"),
        "open", List.of("open_restaurant", "restaurant_id"),
        "close", List.of("close_restaurant", "restaurant_id"),
        "food_off", List.of("deactivate_food", "food_id", "restaurant_id"),
        "food_on", List.of("activate_food", "food_id", "restaurant_id"));

    interface Work {
        int run() throws SQLException;
    }

    /** A row: the values of its columns by name. */
    static class Row extends HashMap<String, Object> {
        /** NULL is "". */
        String text(String column) {
            return Objects.toString(get(column), "");
        }

        long number(String column) {
            return get(column) == null ? 0 : ((Number) get(column)).longValue();
        }
    }

    final Connection db;

    Pos(Connection db) {
        this.db = db;
    }

    public static void main(String[] words) throws Exception {
        if (words.length == 0 || !Files.exists(Path.of(words[0]))) { // never make an empty file where there is none
            System.err.println("no such file; the head of this one says how it is started");
            System.exit(1);
        }
        Properties properties = new Properties();
        properties.setProperty("busy_timeout", "5000"); // wait that long for the daemon's transactions
        properties.setProperty("transaction_mode", "IMMEDIATE"); // a deferred one fails at once beside another writer
        int code = 0;
        try (Connection db = DriverManager.getConnection("jdbc:sqlite:" + words[0], properties)) {
            Pos pos = new Pos(db);
            for (String table : TABLES) {
                pos.write(table);
            }
            if (words.length == 1 || words[1].equals("--orders")) {
                pos.run(words.length > 2 ? Integer.parseInt(words[2]) : -1);
            } else {
                code = pos.step(words[1], List.of(words).subList(2, words.length));
            }
        }
        System.exit(code);
    }

    // ---- the till ----------------------------------------------------------------------------------------------------

    void run(int orders) throws Exception {
        // The last run may have ended in the middle of a paper: print it again, and say so.
        write("UPDATE pos_prints SET paper = 'waits', ticket = 'REPRINT ' || ticket WHERE paper = 'begun'");
        // A ticket holds the customer's words: orderbridge blanks its own 90 days after the end.
        write("DELETE FROM pos_prints WHERE payment_key IN"
            + " (SELECT payment_key FROM delivery_orders WHERE ended_utc < datetime('now', '-90 days'))");
        int taken = 0;
        Map<String, String> lamps = Map.of();
        while (true) {
            try {
                takeChanged();
                taken += takeNew();
                takeScheduled();
                printWaiting();
                showVerdicts();
                lamps = showLamps(lamps);
            } catch (SQLException error) { // held by somebody for too long, perhaps: the next look does it
                System.out.println("!!! " + error.getMessage());
            }
            List<Row> left = rows("SELECT 1 FROM pos_asked UNION ALL SELECT 1 FROM delivery_changed_orders WHERE " + OURS);
            if (orders >= 0 && taken >= orders && left.isEmpty()) {
                return;
            }
            Thread.sleep(LOOK_MS);
        }
    }

    /** Take each new order over: our number, its ticket and our answer are written together or not at all. */
    int takeNew() throws SQLException {
        int taken = 0;
        for (Row order : rows(ORDERS + " FROM delivery_new_orders ORDER BY received_utc, payment_key")) {
            String key = order.text("payment_key");
            String reference = "A-" + order.text("order_number");
            boolean soldOut = order.text("status").equals("RECEIVED")
                && !rows(SOLD_OUT, key, order.text("account")).isEmpty();
            String kind = soldOut ? "SOLD OUT" : order.number("is_later") == 1 ? "LATER" : "NEW";
            String ticket = ticketText(order, kind, reference);
            taken += inTransaction(() -> {
                int mine = write("UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?"
                    + " WHERE payment_key = ? AND pos_revision = 0 AND ended_utc IS NULL",
                    order.get("revision"), reference, key);
                if (mine == 0) {
                    return 0; // another till has it, or it was cancelled since we read it
                }
                remember(order, kind, ticket);
                if (soldOut) {
                    askOnce("cancel", key, "reason_id", OUT_OF_STOCK);
                } else {
                    accept(order);
                }
                return 1;
            });
        }
        return taken;
    }

    void accept(Row order) throws SQLException {
        if (order.text("status").equals("RECEIVED") && !waitsForPerson(order)) {
            askOnce("accept", order.text("payment_key"), "preparing_time", READY_IN_MINUTES);
        }
    }

    /** Sums that do not add up hold nothing up. */
    static boolean waitsForPerson(Row order) {
        boolean isDoubtful = Arrays.stream(order.text("problem").split(","))
            .anyMatch(code -> !code.isEmpty() && !code.startsWith("total_mismatch"));
        boolean isNear = order.get("is_later") != null && order.number("is_later") == 0;
        return isDoubtful || (!order.text("scheduled_for").isEmpty() && !isNear);
    }

    /** Asked before, whatever became of it: a second try is a person's. */
    void askOnce(String action, String key, String argument, Object value) throws SQLException {
        String request = action + "-" + key;
        if (rows("SELECT 1 FROM delivery_actions WHERE request_id = ?", request).isEmpty()) {
            Map<String, Object> columns = new LinkedHashMap<>();
            columns.put("payment_key", key);
            columns.put(argument, value);
            ask(request, action, columns);
        }
    }

    /** A row in the outbox, and with it the note that we wait for its verdict. */
    void ask(String request, String action, Map<String, Object> columns) throws SQLException {
        List<Object> values = new ArrayList<>(List.of(request, action));
        values.addAll(columns.values());
        write("INSERT INTO delivery_actions (request_id, action, " + String.join(", ", columns.keySet())
            + ", created_by) VALUES (" + "?, ".repeat(values.size()) + "'mini POS')", values.toArray());
        write("INSERT INTO pos_asked (request_id) VALUES (?)", request);
    }

    /** The time of an order that was put by for later has come. */
    void takeScheduled() throws SQLException {
        for (Row order : rows(ORDERS + " FROM delivery_open_orders AS due WHERE " + OURS + " AND COALESCE(is_later, 0) = 0"
            + " AND EXISTS (SELECT 1 FROM pos_prints WHERE payment_key = due.payment_key AND kind = 'LATER')"
            + " AND NOT EXISTS (SELECT 1 FROM pos_prints WHERE payment_key = due.payment_key AND kind = 'NOW')")) {
            String ticket = ticketText(order, "NOW", order.text("pos_reference"));
            inTransaction(() -> {
                remember(order, "NOW", ticket);
                accept(order);
                return 0;
            });
        }
    }

    /** What became of our orders: the revision that we read is noted together with what the kitchen must hear. */
    void takeChanged() throws SQLException {
        for (Row order : rows(ORDERS + " FROM delivery_changed_orders WHERE " + OURS + " ORDER BY changed_utc, payment_key")) {
            Object key = order.get("payment_key");
            String reference = order.text("pos_reference");
            boolean isOver = order.get("ended_utc") != null;
            List<Row> last = rows("SELECT kind, revision FROM pos_prints WHERE payment_key = ? ORDER BY id DESC LIMIT 1", key);
            Row told = last.isEmpty() ? new Row() : last.get(0);
            String kind = "";
            String ticket = "";
            if (isOver) { // first: what is over is never printed to be cooked
                // SOLD OUT: that was our own cancel, before anybody cooked; its verdict is word enough.
                boolean isCancelled = order.text("ended_by").equals("cancelled");
                if (isCancelled && !List.of("", "STOP", "SOLD OUT").contains(told.text("kind"))) {
                    kind = "STOP";
                    ticket = "STOP " + reference + "\n  cancelled: do not cook it, do not send it out";
                }
            } else if (List.of("", "STOP").contains(told.text("kind"))
                || order.number("contents_revision") > told.number("revision")) {
                kind = "CHANGED"; // other items, notes or money
                ticket = ticketText(order, kind, reference);
            }
            String print = kind;
            String text = ticket;
            inTransaction(() -> {
                int noted = write("UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ? AND pos_revision < ?",
                    order.get("revision"), key, order.get("revision"));
                if (noted > 0 && !print.isEmpty()) {
                    remember(order, print, text);
                }
                return noted;
            });
            System.out.println(reference + ": " + order.text("status") + (isOver ? ", over" : ""));
        }
    }

    void remember(Row order, String kind, String ticket) throws SQLException {
        write("INSERT OR IGNORE INTO pos_prints (payment_key, revision, kind, ticket) VALUES (?, ?, ?, ?)",
            order.get("payment_key"), order.get("revision"), kind, ticket);
    }

    /** What to collect, what to cook, and what else to know. */
    String ticketText(Row order, String kind, String reference) throws SQLException {
        List<String> lines = new ArrayList<>();
        lines.add(kind + " " + reference);
        lines.add("  collect: " + order.text("collect") + ", " + Objects.toString(order.get("payment_method"), "?"));
        if (kind.equals("SOLD OUT")) {
            lines.add("  do not cook it: we cancel it");
        }
        if (!order.text("scheduled_for").isEmpty()) {
            lines.add((order.number("is_later") == 1 ? "  not now: for " : "  for ") + order.text("scheduled_for"));
        }
        if (!order.text("problem").isEmpty()) {
            lines.add("  look at it in the platform's panel: " + order.text("problem"));
        }
        if (order.text("status").equals("RECEIVED") && waitsForPerson(order)) {
            lines.add("  a person must accept it: " + order.text("payment_key"));
        }
        if (!order.text("note").isEmpty()) {
            lines.add("  note: " + order.text("note"));
        }
        for (Row row : rows(LINES, order.get("payment_key"))) {
            lines.add(row.text("line"));
        }
        return String.join("\n", lines);
    }

    /** After the COMMIT. Marked before and after the paper: so the next start knows what a crash left in between. */
    void printWaiting() throws SQLException {
        for (Row row : rows("SELECT id, ticket FROM pos_prints AS prints"
            + " JOIN delivery_orders AS orders ON orders.payment_key = prints.payment_key"
            + " WHERE paper = 'waits' AND (kind = 'STOP' OR ended_utc IS NULL) ORDER BY id")) { // over: never to be cooked
            if (write("UPDATE pos_prints SET paper = 'begun' WHERE id = ? AND paper = 'waits'", row.get("id")) > 0) {
                System.out.println(row.text("ticket")); // here is the printer; no row changed: another till is at it
                write("UPDATE pos_prints SET paper = 'out' WHERE id = ?", row.get("id"));
            }
        }
    }

    /** Tell the cashier how each of our rows ended, and loudly what was not done. */
    void showVerdicts() throws SQLException {
        for (Row row : rows("SELECT asked.request_id, action, state, error_text,"
            + " COALESCE(pos_reference, food_id, actions.restaurant_id) AS about FROM pos_asked AS asked"
            + " JOIN delivery_actions AS actions ON actions.request_id = asked.request_id"
            + " LEFT JOIN delivery_orders AS orders ON orders.payment_key = actions.payment_key"
            + " WHERE state NOT IN ('pending', 'sending') ORDER BY actions.id")) {
            String loud = List.of("refused", "failed", "expired").contains(row.text("state")) ? "!!! " : "";
            String end = row.text("state") + " " + row.text("error_text");
            System.out.println((loud + row.text("action") + " " + row.text("about") + ": " + end).stripTrailing());
            write("DELETE FROM pos_asked WHERE request_id = ?", row.get("request_id"));
        }
    }

    /** What is wrong with orderbridge itself, when that changes. It is right also when the daemon is dead. */
    Map<String, String> showLamps(Map<String, String> last) throws SQLException {
        Map<String, String> lamps = new LinkedHashMap<>(); // what each says, and its colour
        for (Row row : rows(LAMPS)) {
            String words = row.text("account") + ": " + row.text("sentence") + " " + row.text("remedy");
            lamps.put("lamp " + row.text("lamp") + ", " + words.stripTrailing(), row.text("lamp"));
        }
        lamps.forEach((words, lamp) -> {
            if (!last.containsKey(words) && (!last.isEmpty() || !lamp.equals("green"))) {
                System.out.println(words);
            }
        });
        return lamps;
    }

    // ---- what a person does: 1 with a sentence when it went wrong, 64 for what cannot be done here -------------------

    int step(String verb, List<String> values) throws SQLException {
        List<Row> found = rows(ORDERS + " FROM delivery_orders WHERE payment_key = ?", values.isEmpty() ? "" : values.get(0));
        Row order = found.isEmpty() ? null : found.get(0);
        List<String> names = VERBS.getOrDefault(verb, Collections.emptyList());
        if (!names.isEmpty() && values.size() == names.size() - 1) {
            if (names.get(1).equals("payment_key") && order == null) {
                return wrong("no such order", 1);
            }
            if (verb.equals("on_the_way") && !List.of("", "restaurant").contains(order.text("courier_type"))) {
                return wrong("the restaurant does not bring it: " + order.text("courier_type"), 1);
            }
            return click(verb, names, values);
        }
        if (order == null || !List.of("ticket", "collect", "withdraw").contains(verb)) {
            return wrong("no such order or no such verb; the head of this file has them", 64);
        }
        if (verb.equals("collect")) {
            System.out.println(order.text("collect"));
        } else if (verb.equals("ticket")) {
            for (Row row : rows("SELECT ticket FROM pos_prints WHERE payment_key = ? AND paper <> 'waits' ORDER BY id",
                values.get(0))) {
                System.out.println(row.text("ticket"));
            }
        } else if (write("UPDATE delivery_actions SET withdraw = 1 WHERE payment_key = ?"
            + " AND state IN ('pending', 'sending')", values.get(0)) == 0) {
            System.out.println("nothing of it waits");
        }
        return 0;
    }

    /** A new try has a new request_id: …, …-2, …-3. A doubled click is none: it finds the row of the first. */
    int click(String verb, List<String> names, List<String> values) throws SQLException {
        boolean isOrder = names.get(1).equals("payment_key");
        String request = verb + "-" + (isOrder ? values.get(0) : String.join("-", values));
        Map<String, Object> columns = new LinkedHashMap<>();
        for (int i = 0; i < values.size(); i++) {
            columns.put(names.get(i + 1), values.get(i));
        }
        try {
            return inTransaction(() -> {
                List<Row> tries = rows("SELECT state, finished_utc > datetime('now', '-10 seconds') AS is_fresh"
                    + " FROM delivery_actions WHERE request_id = ? OR request_id LIKE ? || '-%' ORDER BY id",
                    request, request);
                Row last = tries.isEmpty() ? new Row() : tries.get(tries.size() - 1);
                // An order is accepted once. A restaurant may be opened again tomorrow, only not twice by one click.
                boolean isDone = last.text("state").equals("done") && (isOrder || last.number("is_fresh") == 1);
                if (isDone || List.of("pending", "sending").contains(last.text("state"))) {
                    System.out.println("asked already: " + last.text("state"));
                } else {
                    ask(tries.isEmpty() ? request : request + "-" + (tries.size() + 1), names.get(0), columns);
                }
                return 0;
            });
        } catch (SQLException error) {
            return wrong("refused: " + error.getMessage(), 1); // an error of the program or a wrong argument
        }
    }

    static int wrong(String sentence, int code) {
        System.err.println(sentence);
        return code;
    }

    // ---- the database ------------------------------------------------------------------------------------------------

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

    /** All of them: nothing is being read while we write. */
    List<Row> rows(String sql, Object... values) throws SQLException {
        List<Row> rows = new ArrayList<>();
        try (PreparedStatement statement = prepared(sql, values); ResultSet result = statement.executeQuery()) {
            while (result.next()) {
                Row row = new Row();
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
