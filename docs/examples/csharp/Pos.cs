// A mini POS for orderbridge. .NET with the package Microsoft.Data.Sqlite, or Mono with its own Mono.Data.Sqlite:
//
//   mcs -d:MONO -r:System.Data.dll -r:Mono.Data.Sqlite.dll Pos.cs
//   mono Pos.exe DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped. Several may run on one file, and each may be stopped at any moment.

using System;
using System.Collections.Generic;
using System.Data;
using System.Linq;
using System.Threading;
#if MONO
using Mono.Data.Sqlite;
#else
using Microsoft.Data.Sqlite;
#endif
using Row = System.Collections.Generic.Dictionary<string, object>;

class Pos
{
    const int LookMs = 500;
    const int ReadyInMinutes = 25;
    const int OutOfStock = 1; // delivery_cancel_reasons

#if MONO
    const string Options = ";Journal Mode=WAL"; // Mono's own default takes the file out of it
#else
    const string Options = "";
#endif

    readonly IDbConnection db;
    readonly long foodId;
    readonly HashSet<object> waiting = new HashSet<object>(); // the ids of our rows without a verdict

    static void Main(string[] arguments)
    {
        using (var db = new SqliteConnection("Data Source=" + arguments[0] + Options))
        {
            db.Open();
            var pos = new Pos(db, long.Parse(arguments[2]));
            pos.Run(arguments[1], arguments.Length > 3 ? int.Parse(arguments[3]) : 0);
        }
    }

    Pos(IDbConnection db, long foodId)
    {
        this.db = db;
        this.foodId = foodId;
    }

    void Run(string account, int orders)
    {
        Write("PRAGMA busy_timeout = 5000"); // wait that long for the daemon's transactions
        ShowOpen();
        InTransaction(() => Write("INSERT INTO delivery_actions (action, account, food_id, created_by)"
            + " VALUES ('deactivate_food', @1, @2, 'mini POS')", account, foodId));
        // An earlier run's rows are among them.
        foreach (var row in Rows("SELECT id FROM delivery_actions"
            + " WHERE created_by = 'mini POS' AND state IN ('pending', 'sending')"))
            waiting.Add(row["id"]);
        int taken = 0;
        while (true)
        {
            taken += TakeNew();
            ShowVerdicts();
            ShowChanged();
            if (orders > 0 && taken >= orders && waiting.Count == 0)
                return;
            Thread.Sleep(LookMs);
        }
    }

    // An earlier run may have stopped before it had printed what it took over: show it again.
    void ShowOpen()
    {
        foreach (var order in Rows("SELECT * FROM delivery_open_orders"
            + " WHERE pos_reference LIKE 'A-%' ORDER BY received_utc, payment_key"))
        {
            Console.WriteLine("open {0}: {1}", order["pos_reference"], order["status"]);
            Show(order);
        }
    }

    // Take each new order over and ask for what becomes of it, in one transaction. Only then print it.
    int TakeNew()
    {
        int taken = 0;
        foreach (var order in Rows("SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key"))
        {
            var key = order["payment_key"];
            var reference = "A-" + order["order_number"];
            bool soldOut = Rows("SELECT 1 FROM delivery_order_items WHERE payment_key = @1 AND food_id = @2",
                key, foodId).Count > 0;
            int changed = InTransaction(() =>
            {
                int updated = Write("UPDATE delivery_orders SET pos_revision = @1, pos_reference = @2"
                    + " WHERE payment_key = @3 AND pos_revision = 0", order["revision"], reference, key);
                if (updated == 0 || (string)order["status"] != "RECEIVED")
                    return updated; // the customer has been answered already
                if (soldOut)
                    Ask("cancel", key, "reason_id", OutOfStock);
                else
                    Ask("accept", key, "preparing_time", ReadyInMinutes);
                return updated;
            });
            if (changed == 0)
                continue; // another till has it, and prints it
            Console.WriteLine("new " + reference);
            Show(order);
            taken++;
        }
        return taken;
    }

    // What to collect, what to cook, and what else to know.
    void Show(Row order)
    {
        var due = order["amount_due"]; // NULL is no 0: nobody knows
        var money = due is DBNull ? "ask what to collect" : string.Format("collect {0:0.00}", Convert.ToDecimal(due));
        Console.WriteLine("  {0}, {1}", money, Said(order["payment_method"]));
        ShowIfAny("  not now: for ", order["scheduled_for"]);
        ShowIfAny("  look at it in the service's panel: ", order["problem"]);
        ShowIfAny("  note: ", order["note"]);
        foreach (var item in Rows("SELECT * FROM delivery_order_items WHERE payment_key = @1 ORDER BY line_no",
            order["payment_key"]))
        {
            Console.WriteLine("  {0} x {1}", Said(item["quantity"]), Said(item["name"]));
            foreach (var option in Rows("SELECT * FROM delivery_order_item_options"
                + " WHERE payment_key = @1 AND line_no = @2 ORDER BY option_no", order["payment_key"], item["line_no"]))
                Console.WriteLine("    {0} {1}: {2}", Said(option["operation"]), Said(option["group_name"]),
                    Said(option["option_name"]));
            ShowIfAny("    note: ", item["note"]);
        }
    }

    static void ShowIfAny(string words, object value)
    {
        if (value.ToString() != "") // a NULL is DBNull here, and that is ""
            Console.WriteLine(words + value);
    }

    // NULL: the service did not say.
    static object Said(object value)
    {
        return value is DBNull ? "?" : value;
    }

    // A row in the outbox. What was asked for under the same request_id is not asked for again.
    void Ask(string action, object key, string argument, int value)
    {
        var request = action + "-" + key;
        const string same = "SELECT id FROM delivery_actions WHERE request_id = @1";
        if (Rows(same, request).Count == 0)
            Write("INSERT INTO delivery_actions (request_id, action, payment_key, " + argument + ", created_by)"
                + " VALUES (@1, @2, @3, @4, 'mini POS')", request, action, key, value);
        waiting.Add(Rows(same, request)[0]["id"]);
    }

    // Show what became of the orders that we have, and note the revision that we have shown.
    void ShowChanged()
    {
        foreach (var order in Rows("SELECT * FROM delivery_changed_orders"
            + " WHERE pos_reference LIKE 'A-%' ORDER BY changed_utc"))
        {
            Console.WriteLine("changed {0}: {1} ({2})", order["pos_reference"], order["status"], order["last_change"]);
            if (!(order["ended_utc"] is DBNull))  // what is over is never printed to be cooked
                Console.WriteLine("  STOP: {0}", order["ended_by"]);
            else if (Convert.ToInt64(order["contents_revision"]) > Convert.ToInt64(order["pos_revision"]))
                Show(order);  // other items, notes or money than we have printed
            InTransaction(() => Write("UPDATE delivery_orders SET pos_revision = @1 WHERE payment_key = @2",
                order["revision"], order["payment_key"]));
        }
    }

    // Tell the cashier how each row ended.
    void ShowVerdicts()
    {
        foreach (var id in waiting.ToList())
            foreach (var row in Rows("SELECT action, food_id, pos_reference, state, error_text FROM delivery_actions"
                + " LEFT JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key"
                + " WHERE id = @1 AND state NOT IN ('pending', 'sending')", id))
            {
                var about = row["pos_reference"] is DBNull ? row["food_id"] : row["pos_reference"];
                Console.WriteLine(
                    string.Format("verdict {0} {1}: {2} {3}", row["action"], about, row["state"], row["error_text"])
                        .TrimEnd());
                waiting.Remove(id);
            }
    }

    int InTransaction(Func<int> work)
    {
        Write("BEGIN IMMEDIATE"); // a deferred BEGIN fails at once beside another writer, whatever the timeout
        try
        {
            int result = work();
            Write("COMMIT");
            return result;
        }
        catch
        {
            Write("ROLLBACK");
            throw;
        }
    }

    // How many rows it wrote.
    int Write(string sql, params object[] values)
    {
        using (var command = Command(sql, values))
            return command.ExecuteNonQuery();
    }

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
