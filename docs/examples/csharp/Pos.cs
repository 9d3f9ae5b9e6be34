// A mini POS for orderbridge. .NET with the package Microsoft.Data.Sqlite, or Mono with its own Mono.Data.Sqlite:
//
//   mcs -d:MONO -r:System.Data.dll -r:Mono.Data.Sqlite.dll Pos.cs
//   mono Pos.exe DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped.

using System;
using System.Collections.Generic;
using System.Data;
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
    const string Options = ";Journal Mode=WAL"; // Mono's own default takes the file out of it
#else
    const string Options = "";
#endif

    readonly IDbConnection db;
    readonly long foodId;
    readonly Dictionary<long, string> waiting = new Dictionary<long, string>(); // our rows without a verdict

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
        InTransaction(() =>
        {
            Write("INSERT INTO delivery_actions (action, account, food_id, created_by)"
                + " VALUES ('deactivate_food', @1, @2, 'mini POS')", account, foodId);
            Remember("deactivate_food " + foodId);
        });
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

    // Print each new order, then say that we have it and what becomes of it, in one transaction.
    int TakeNew()
    {
        var fresh = Rows("SELECT payment_key, revision, order_number, status, payment_method,"
            + " COALESCE(ROUND(total, 2), 0) AS total, problem FROM delivery_new_orders ORDER BY received_utc");
        foreach (var order in fresh)
        {
            var key = order["payment_key"];
            var reference = "A-" + order["order_number"];
            var total = Convert.ToDecimal(order["total"]);
            Console.WriteLine("new {0}: {1:0.00} {2}", reference, total, order["payment_method"]);
            if (!(order["problem"] is DBNull))
                Console.WriteLine("  look at it in the service's panel: " + order["problem"]);
            bool soldOut = false;
            foreach (var item in Rows("SELECT quantity, name, food_id FROM delivery_order_items"
                + " WHERE payment_key = @1 ORDER BY line_no", key))
            {
                Console.WriteLine("  {0} x {1}", item["quantity"], item["name"]);
                soldOut |= !(item["food_id"] is DBNull) && Convert.ToInt64(item["food_id"]) == foodId;
            }
            InTransaction(() =>
            {
                Write("UPDATE delivery_orders SET pos_revision = @1, pos_reference = @2 WHERE payment_key = @3",
                    order["revision"], reference, key);
                if ((string)order["status"] != "RECEIVED")
                    return; // somebody has answered the customer already
                if (soldOut)
                {
                    Write("INSERT INTO delivery_actions (action, payment_key, reason_id, created_by)"
                        + " VALUES ('cancel', @1, @2, 'mini POS')", key, OutOfStock);
                    Remember("cancel " + reference);
                }
                else
                {
                    Write("INSERT INTO delivery_actions (action, payment_key, preparing_time, created_by)"
                        + " VALUES ('accept', @1, @2, 'mini POS')", key, ReadyInMinutes);
                    Remember("accept " + reference);
                }
            });
        }
        return fresh.Count;
    }

    // The row that was just written has no verdict yet.
    void Remember(string words)
    {
        waiting[Convert.ToInt64(Rows("SELECT last_insert_rowid() AS id")[0]["id"])] = words;
    }

    // Show what became of the orders that we have, and note the revision that we have shown.
    void ShowChanged()
    {
        foreach (var order in Rows("SELECT payment_key, revision, pos_reference, status, last_change"
            + " FROM delivery_changed_orders ORDER BY changed_utc"))
        {
            Console.WriteLine("changed {0}: {1} ({2})", order["pos_reference"], order["status"], order["last_change"]);
            InTransaction(() => Write("UPDATE delivery_orders SET pos_revision = @1 WHERE payment_key = @2",
                order["revision"], order["payment_key"]));
        }
    }

    // Tell the cashier how each row ended.
    void ShowVerdicts()
    {
        foreach (var id in new List<long>(waiting.Keys))
            foreach (var row in Rows("SELECT state, error_text FROM delivery_actions"
                + " WHERE id = @1 AND state NOT IN ('pending', 'sending')", id))
            {
                Console.WriteLine(("verdict " + waiting[id] + ": " + row["state"] + " " + row["error_text"]).TrimEnd());
                waiting.Remove(id);
            }
    }

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

    void Write(string sql, params object[] values)
    {
        using (var command = Command(sql, values))
            command.ExecuteNonQuery();
    }

    List<Dictionary<string, object>> Rows(string sql, params object[] values)
    {
        var rows = new List<Dictionary<string, object>>();
        using (var command = Command(sql, values))
        using (var reader = command.ExecuteReader())
            while (reader.Read())
            {
                var row = new Dictionary<string, object>();
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
