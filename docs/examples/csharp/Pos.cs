// A mini POS for orderbridge. .NET with the package Microsoft.Data.Sqlite, or Mono with its own Mono.Data.Sqlite:
//
//   mcs -d:MONO -r:System.Data.dll -r:Mono.Data.Sqlite.dll Pos.cs
//   mono Pos.exe DATABASE [--orders N]     the till, until it is stopped or has taken N orders over
//   mono Pos.exe DATABASE VERB ARGUMENTS   an action of a person, while the till runs
//
//   accept KEY MINUTES   cancel KEY REASON_ID   on_the_way KEY   complete KEY   withdraw KEY (the waiting action)
//   open RESTAURANT_ID   close RESTAURANT_ID   food_off FOOD_ID RESTAURANT_ID   food_on FOOD_ID RESTAURANT_ID
//   ticket KEY (all tickets of the order)   collect KEY (the amount to collect)
//
// The till takes orders over and accepts them. An order with a food that was switched off is cancelled. A scheduled
// order, or one with a `problem`, waits for a person. The till may be killed at any moment, and then continues: a
// ticket that may already be printed is printed again after a minute, with PERHAPS A SECOND COPY on it. Several tills
// may run on one file, also under one name; what one leaves for a minute, another one prints.

using System;
using System.Collections.Generic;
using System.Data;
using System.Data.Common;
using System.IO;
using System.Linq;
using System.Threading;
#if MONO
using Mono.Data.Sqlite;
#else
using Microsoft.Data.Sqlite;
#endif

class Pos
{
    const int LookMs = 500;
    const int ReadyInMinutes = 25;
    const int OutOfStock = 1; // delivery_cancel_reasons

#if MONO
    const string Options = ";Journal Mode=WAL"; // Mono's default would switch WAL off
#else
    const string Options = "";
#endif

    const string Till = "K1"; // each till has its own name
    // The two tables of the POS guide. till_papers: the kitchen's tickets; a paper waits, is begun, or is out.
    // till_asked: our actions whose results were not shown to a person yet.
    const string Tables = @"
        CREATE TABLE IF NOT EXISTS till_papers (
            payment_key TEXT NOT NULL, revision INTEGER NOT NULL, kind TEXT NOT NULL, till TEXT NOT NULL,
            ticket TEXT NOT NULL, paper TEXT NOT NULL DEFAULT 'waits', tries INTEGER NOT NULL DEFAULT 0,
            since INTEGER NOT NULL DEFAULT (strftime('%s', 'now')), PRIMARY KEY (payment_key, revision, kind));
        CREATE TABLE IF NOT EXISTS till_asked (request_id TEXT PRIMARY KEY, till TEXT NOT NULL);";
    const string Ours = "pos_reference LIKE '" + Till + "-%'";
    const string Changed = " FROM delivery_changed_orders WHERE " + Ours
        + @" OR (strftime('%s', 'now') - strftime('%s', changed_utc) > 60
            AND payment_key IN (SELECT payment_key FROM till_papers))"; // and those that another till left a minute ago
    // Papers that another till or a printer left a minute ago are printed, too; of an ended order, only STOP.
    const string Waiting = @"
        SELECT papers.rowid AS id, paper, tries, CASE WHEN tries > 0 THEN 'PERHAPS A SECOND COPY ' ELSE '' END
            || CASE WHEN till <> '" + Till + @"' THEN 'from ' || till || ' ' ELSE '' END || ticket AS ticket
        FROM till_papers AS papers JOIN delivery_orders AS orders ON orders.payment_key = papers.payment_key
        WHERE (kind = 'STOP' OR ended_utc IS NULL)
            AND ((paper = 'waits' AND till = '" + Till + @"') OR (paper <> 'out' AND since < strftime('%s', 'now') - 60))
        ORDER BY papers.rowid";
    // is_later: over an hour ahead, by this computer's time zone. NULL: not scheduled, or an unreadable time.
    const string Orders = @"
        SELECT *, datetime(scheduled_for) > datetime('now', 'localtime', '+60 minutes') AS is_later,
            CASE WHEN amount_due IS NULL THEN 'ask' ELSE printf('%.2f', amount_due) END AS collect";
    // Whether the last switch of one of the order's foods was off.
    const string SoldOut = @"
        SELECT 1 FROM delivery_order_items AS item WHERE payment_key = @1 AND 'deactivate_food' = (
            SELECT action FROM delivery_actions WHERE food_id = item.food_id AND state IN ('pending', 'sending', 'done')
                AND restaurant_id IN (SELECT id FROM delivery_restaurants WHERE account = @2) ORDER BY id DESC LIMIT 1)";
    // Each item, its options below it, then its note. NULL: the platform sent no value.
    const string Lines = @"
        SELECT line FROM (
            SELECT payment_key, line_no, 1 AS part, 0 AS option_no,
                '  ' || COALESCE(quantity, '?') || ' x ' || COALESCE(name, '?') AS line FROM delivery_order_items
            UNION ALL SELECT payment_key, line_no, 2, option_no, '    ' || COALESCE(operation, '?') || ' '
                || COALESCE(group_name, '?') || ': ' || COALESCE(option_name, '?') FROM delivery_order_item_options
            UNION ALL SELECT payment_key, line_no, 3, 0, '    note: ' || note FROM delivery_order_items WHERE note <> ''
        ) WHERE payment_key = @1 ORDER BY line_no, part, option_no";
    const string Lamps = @"
        SELECT lamp, account, sentence, remedy FROM delivery_lamp
        UNION ALL SELECT 'red', '?', 'orderbridge has not run yet', NULL WHERE NOT EXISTS (SELECT 1 FROM delivery_lamp)";
    static readonly Dictionary<string, string[]> Verbs = new Dictionary<string, string[]>
    { // the action, and the columns for its arguments
        { "accept", new[] { "accept", "payment_key", "preparing_time" } },
        { "cancel", new[] { "cancel", "payment_key", "reason_id" } },
        { "on_the_way", new[] { "on_the_way", "payment_key" } },
        { "complete", new[] { "complete", "payment_key" } },
        { "open", new[] { "open_restaurant", "restaurant_id" } },
        { "close", new[] { "close_restaurant", "restaurant_id" } },
        { "food_off", new[] { "deactivate_food", "food_id", "restaurant_id" } },
        { "food_on", new[] { "activate_food", "food_id", "restaurant_id" } },
    };

    // The values of a row's columns by name.
    class Row : Dictionary<string, object>
    {
        // NULL is DBNull here, and that is "".
        public string Text(string column)
        {
            return ContainsKey(column) ? this[column].ToString() : "";
        }

        public bool Is(string column)
        {
            return Text(column) == "1";
        }
    }

    readonly IDbConnection db;

    Pos(IDbConnection db)
    {
        this.db = db;
    }

    static int Main(string[] words)
    {
        if (words.Length == 0 || !File.Exists(words[0])) // never create an empty file
            return Wrong("no such file; the head of this one says how it is started", 1);
        using (var connection = new SqliteConnection("Data Source=" + words[0] + Options))
        {
            connection.Open();
            var pos = new Pos(connection);
            pos.Write("PRAGMA busy_timeout = 5000"); // how long to wait for the daemon's transactions
            pos.Write(Tables);
            if (words.Length > 1 && words[1] != "--orders")
                return pos.Step(words[1], words.Skip(2).ToArray());
            pos.Run(words.Length > 2 ? int.Parse(words[2]) : (int?)null);
            return 0;
        }
    }

    // ---- the till ----------------------------------------------------------------------------------------------------

    void Run(int? orders)
    {
        // A ticket has customers' data: orderbridge blanks its own 90 days after the end, too.
        Write("DELETE FROM till_papers WHERE payment_key IN"
            + " (SELECT payment_key FROM delivery_orders WHERE ended_utc < datetime('now', '-90 days'))");
        int taken = 0;
        var lamps = new List<string>();
        while (true)
        {
            try
            {
                TakeChanged();
                taken += TakeNew();
                TakeScheduled();
                PrintWaiting();
                ShowVerdicts();
                lamps = ShowLamps(lamps);
            }
            catch (DbException error) // perhaps a long lock: the next round tries again
            {
                Console.WriteLine("!!! " + error.Message);
            }
            var left = Rows("SELECT 1 FROM till_asked WHERE till = '" + Till + "' UNION ALL SELECT 1" + Changed);
            if (orders != null && taken >= orders && left.Count == 0)
                return;
            Thread.Sleep(LookMs);
        }
    }

    // Take each new order over. Our number, the ticket and the answer are written together or not at all.
    int TakeNew()
    {
        int taken = 0;
        foreach (var order in Rows(Orders + " FROM delivery_new_orders ORDER BY received_utc, payment_key"))
        {
            string key = order.Text("payment_key"), reference = Till + "-" + order.Text("order_number");
            bool soldOut = order.Text("status") == "RECEIVED" && Rows(SoldOut, key, order["account"]).Count > 0;
            string kind = soldOut ? "SOLD OUT" : order.Is("is_later") ? "LATER" : "NEW";
            string ticket = TicketText(order, kind, reference);
            InTransaction(() =>
            {
                int mine = Write("UPDATE delivery_orders SET pos_revision = @1, pos_reference = @2"
                    + " WHERE payment_key = @3 AND pos_revision = 0 AND ended_utc IS NULL",
                    order["revision"], reference, key);
                if (mine == 0)
                    return; // another till has it, or it was cancelled after we read it
                Remember(order, kind, ticket);
                if (soldOut)
                    AskOnce("cancel", key, "reason_id", OutOfStock);
                else
                    Accept(order);
                taken++;
            });
        }
        return taken;
    }

    void Accept(Row order)
    {
        if (order.Text("status") == "RECEIVED" && !WaitsForPerson(order))
            AskOnce("accept", order.Text("payment_key"), "preparing_time", ReadyInMinutes);
    }

    // The problem `total_mismatch` alone does not need a person before the accept.
    static bool WaitsForPerson(Row order)
    {
        bool isDoubtful = order.Text("problem").Split(',').Any(code => code != "" && !code.StartsWith("total_mismatch"));
        bool isNear = order.Text("is_later") == "0";
        return isDoubtful || (order.Text("scheduled_for") != "" && !isNear);
    }

    // Insert a row unless the action was requested before: only a person tries again.
    void AskOnce(string action, string key, string argument, object value)
    {
        var request = action + "-" + key;
        if (Rows("SELECT 1 FROM delivery_actions WHERE request_id = @1", request).Count == 0)
            Ask(request, action, new[] { "payment_key", argument }, new[] { key, value });
    }

    // Insert a row into the outbox, and note that we wait for its result.
    void Ask(string request, string action, string[] names, object[] values)
    {
        var marks = string.Join(", ", names.Select((name, i) => "@" + (i + 3)));
        Write("INSERT INTO delivery_actions (request_id, action, created_by, " + string.Join(", ", names) + ")"
            + " VALUES (@1, @2, 'mini POS', " + marks + ")", new object[] { request, action }.Concat(values).ToArray());
        Write("INSERT INTO till_asked (request_id, till) VALUES (@1, @2)", request, Till);
    }

    // Print the scheduled orders that are now due.
    void TakeScheduled()
    {
        foreach (var order in Rows(Orders + " FROM delivery_open_orders AS due WHERE " + Ours + @"
            AND COALESCE(is_later, 0) = 0
            AND EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'LATER')
            AND NOT EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'NOW')"))
        {
            string ticket = TicketText(order, "NOW", order.Text("pos_reference"));
            InTransaction(() =>
            {
                Remember(order, "NOW", ticket);
                Accept(order);
            });
        }
    }

    // Read our changed orders. The revision that we read and the kitchen's ticket are written together.
    void TakeChanged()
    {
        foreach (var order in Rows(Orders + Changed + " ORDER BY changed_utc, payment_key"))
        {
            InTransaction(() =>
            {
                if (Write("UPDATE delivery_orders SET pos_revision = @1"
                    + " WHERE payment_key = @2 AND pos_revision < @1", order["revision"], order["payment_key"]) > 0)
                    TellKitchen(order);
            });
            Console.WriteLine("{0}: {1}{2}", order["pos_reference"], order["status"],
                order.Text("ended_utc") == "" ? "" : ", over");
        }
    }

    void TellKitchen(Row order)
    {
        object key = order["payment_key"];
        bool isOver = order.Text("ended_utc") != "";
        if (isOver) // first, because an ended order is never cooked
        {
            Write("DELETE FROM till_papers WHERE payment_key = @1 AND paper = 'waits'", key);
            Write("UPDATE till_papers SET paper = 'out' WHERE payment_key = @1 AND paper = 'begun'", key);
        }
        var newest = Rows("SELECT kind, revision FROM till_papers WHERE payment_key = @1 ORDER BY rowid DESC LIMIT 1",
            key).FirstOrDefault() ?? new Row { { "kind", "" }, { "revision", 0 } };
        string kind = newest.Text("kind"), reference = order.Text("pos_reference");
        if (isOver)
        {
            // SOLD OUT: our own cancel, before the kitchen cooked; its result is shown anyway.
            if (order.Text("ended_by") == "cancelled" && !new[] { "", "STOP", "SOLD OUT" }.Contains(kind))
                Remember(order, "STOP", "STOP " + reference + "\n  cancelled: do not cook it, do not send it out");
        }
        else if (new[] { "", "STOP" }.Contains(kind)
            || Convert.ToInt64(order["contents_revision"]) > Convert.ToInt64(newest["revision"]))
            Remember(order, "CHANGED", TicketText(order, "CHANGED", reference)); // other items, notes or amounts
    }

    void Remember(Row order, string kind, string ticket)
    {
        Write("INSERT OR IGNORE INTO till_papers (payment_key, revision, kind, till, ticket) VALUES (@1, @2, @3, @4, @5)",
            order["payment_key"], order["revision"], kind, Till, ticket);
    }

    // The amount to collect, the items to cook, and remarks.
    string TicketText(Row order, string kind, string reference)
    {
        var method = order.Text("payment_method");
        var lines = new List<string>
        {
            kind + " " + reference, "  collect: " + order["collect"] + ", " + (method == "" ? "?" : method),
        };
        if (kind == "SOLD OUT")
            lines.Add("  do not cook it: we cancel it");
        if (order.Text("scheduled_for") != "")
            lines.Add((order.Is("is_later") ? "  not now: for " : "  for ") + order["scheduled_for"]);
        if (order.Text("problem") != "")
            lines.Add("  look at it in the platform's panel: " + order["problem"]);
        if (order.Text("status") == "RECEIVED" && WaitsForPerson(order))
            lines.Add("  a person must accept it: " + order["payment_key"]);
        if (order.Text("note") != "")
            lines.Add("  note: " + order["note"]);
        lines.AddRange(Rows(Lines, order["payment_key"]).Select(row => row.Text("line")));
        return string.Join("\n", lines);
    }

    // After the COMMIT. If no row changed, another loop or till has begun it, or the order has ended.
    void PrintWaiting()
    {
        foreach (var row in Rows(Waiting))
        {
            if (Write(@"UPDATE till_papers SET paper = 'begun', tries = tries + 1, since = strftime('%s', 'now')
                WHERE rowid = @1 AND paper = @2 AND tries = @3", row["id"], row["paper"], row["tries"]) == 0)
                continue;
            Console.WriteLine(row["ticket"]); // print to your printer here
            Write("UPDATE till_papers SET paper = 'out' WHERE rowid = @1", row["id"]);
        }
    }

    // Show the cashier the result of each of our rows, failures with an alarm.
    void ShowVerdicts()
    {
        foreach (var row in Rows(@"SELECT asked.request_id, action, state, error_text,
            COALESCE(pos_reference, food_id, actions.restaurant_id) AS about FROM till_asked AS asked
            JOIN delivery_actions AS actions ON actions.request_id = asked.request_id
            LEFT JOIN delivery_orders AS orders ON orders.payment_key = actions.payment_key
            WHERE till = @1 AND state NOT IN ('pending', 'sending') ORDER BY actions.id", Till))
        {
            var loud = new[] { "refused", "failed", "expired" }.Contains(row.Text("state")) ? "!!! " : "";
            Console.WriteLine(string.Format("{0}{1} {2}: {3} {4}", loud, row["action"], row["about"], row["state"],
                row["error_text"]).TrimEnd());
            Write("DELETE FROM till_asked WHERE request_id = @1", row["request_id"]);
        }
    }

    // Show changes of the lamp of orderbridge itself. It is correct even if the daemon is dead.
    List<string> ShowLamps(List<string> last)
    {
        var lamps = new List<string>();
        foreach (var row in Rows(Lamps))
        {
            lamps.Add(string.Format("lamp {0}, {1}: {2} {3}", row["lamp"], row["account"], row["sentence"],
                row["remedy"]).TrimEnd());
            if (!last.Contains(lamps.Last()) && (last.Count > 0 || row.Text("lamp") != "green"))
                Console.WriteLine(lamps.Last());
        }
        return lamps;
    }

    // ---- a person's action: 1 with a sentence if it failed, 64 for an unknown action --------------------------------

    int Step(string verb, string[] values)
    {
        var order = Rows(Orders + " FROM delivery_orders WHERE payment_key = @1", values.FirstOrDefault() ?? "")
            .FirstOrDefault();
        if (Verbs.ContainsKey(verb) && values.Length == Verbs[verb].Length - 1)
        {
            if (Verbs[verb][1] == "payment_key" && order == null)
                return Wrong("no such order", 1);
            if (verb == "on_the_way" && !new[] { "", "restaurant" }.Contains(order.Text("courier_type")))
                return Wrong("the restaurant does not bring it: " + order["courier_type"], 1);
            return Click(verb, Verbs[verb][0], Verbs[verb].Skip(1).ToArray(), values);
        }
        if (order == null || !new[] { "ticket", "collect", "withdraw" }.Contains(verb))
            return Wrong("no such order or no such verb; the head of this file has them", 64);
        if (verb == "collect")
            Console.WriteLine(order["collect"]);
        else if (verb == "ticket")
            foreach (var row in Rows("SELECT ticket FROM till_papers WHERE payment_key = @1 AND paper <> 'waits' ORDER BY rowid",
                values[0]))
                Console.WriteLine(row["ticket"]);
        else if (Write("UPDATE delivery_actions SET withdraw = 1 WHERE payment_key = @1"
            + " AND state IN ('pending', 'sending')", values[0]) == 0)
            Console.WriteLine("nothing of it waits");
        return 0;
    }

    // A new try has a new request_id: …, …-2, …-3. A double click is not a new try: it finds the first one's row.
    int Click(string verb, string action, string[] names, string[] values)
    {
        bool isOrder = names[0] == "payment_key";
        var request = verb + "-" + (isOrder ? values[0] : string.Join("-", values));
        try
        {
            InTransaction(() =>
            {
                var tries = Rows("SELECT CASE WHEN EXISTS (SELECT 1 FROM delivery_actions AS newer WHERE newer.id > mine.id"
                    + " AND newer.restaurant_id = mine.restaurant_id AND newer.food_id IS mine.food_id)"
                    + " THEN 'switched back' ELSE state END AS state,"
                    + " finished_utc > datetime('now', '-10 seconds') AS is_fresh"
                    + " FROM delivery_actions AS mine WHERE request_id = @1 OR request_id LIKE @1 || '-%' ORDER BY id", request);
                var last = tries.LastOrDefault() ?? new Row();
                // An order is accepted once. A restaurant may be opened again later, but not twice by a double click.
                bool isDone = last.Text("state") == "done" && (isOrder || last.Is("is_fresh"));
                if (isDone || new[] { "pending", "sending" }.Contains(last.Text("state")))
                    Console.WriteLine("asked already: " + last["state"]);
                else
                    Ask(tries.Count == 0 ? request : request + "-" + (tries.Count + 1), action, names, values);
            });
            return 0;
        }
        catch (DbException error)
        {
            return Wrong("refused: " + error.Message, 1); // an error of the program or a wrong argument
        }
    }

    static int Wrong(string sentence, int code)
    {
        Console.Error.WriteLine(sentence);
        return code;
    }

    // ---- the database ------------------------------------------------------------------------------------------------

    void InTransaction(Action work)
    {
        Write("BEGIN IMMEDIATE"); // a deferred BEGIN fails at once beside another writer, whatever the timeout
        try
        {
            work();
            Write("COMMIT");
        }
        catch
        {
            Write("ROLLBACK");
            throw;
        }
    }

    // The number of changed rows.
    int Write(string sql, params object[] values)
    {
        using (var command = Command(sql, values))
            return command.ExecuteNonQuery();
    }

    // All rows, so that no read is open during a write.
    List<Row> Rows(string sql, params object[] values)
    {
        var rows = new List<Row>();
        using (var command = Command(sql, values))
        using (var reader = command.ExecuteReader())
            while (reader.Read())
            {
                var row = new Row();
                for (int i = 0; i < reader.FieldCount; i++)
                    row[reader.GetName(i)] = reader.GetValue(i);
                rows.Add(row);
            }
        return rows;
    }

    IDbCommand Command(string sql, object[] values)
    {
        var command = db.CreateCommand();
        command.CommandText = sql;
        for (int i = 0; i < values.Length; i++)
        {
            var parameter = command.CreateParameter();
            parameter.ParameterName = "@" + (i + 1);
            parameter.Value = values[i];
            command.Parameters.Add(parameter);
        }
        return command;
    }
}
