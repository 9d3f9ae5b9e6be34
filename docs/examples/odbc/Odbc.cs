// The smallest till over ODBC: takes each new order over, accepts it and prints it. To try things out: it has no print
// memory, so an order that it has taken over just before a crash is never printed. Pos.cs and the POS guide have one.
//
//   csc Odbc.cs                        Windows: C:\Windows\Microsoft.NET\Framework64\v4.0.30319\csc.exe
//   mcs -r:System.Data.dll Odbc.cs     Linux, with Mono and unixODBC
//
// The connection string is in TILL_ODBC, because every user of the computer sees the arguments of a program:
//
//   Driver={PostgreSQL Unicode(x64)};Server=192.168.1.20;Database=pos;Uid=till;Pwd=secret-2;SSLmode=require
//   Driver={MariaDB ODBC 3.1 Driver};Server=192.168.1.20;Database=pos;Uid=till;Pwd=secret-2;Charset=utf8mb4;ForceTLS=1

using System;
using System.Collections.Generic;
using System.Data.Odbc;
using System.Globalization;
using System.Linq;
using System.Text;
using System.Threading;

static class Odbc
{
    const string Till = "W1"; // each till has its own name
    const int ReadyInMinutes = 25;
    const int RoundMs = 2000;

    static OdbcConnection connection;
    static readonly HashSet<object> shown = new HashSet<object>(); // rows of the outbox

    static void Main()
    {
        Console.OutputEncoding = new UTF8Encoding(false);
        while (true)
        {
            try
            {
                Round();
            }
            catch (Exception error) // the server restarts, the network is cut, the computer has slept
            {
                Console.WriteLine("!!! " + error.Message);
                Disconnect();
            }
            Thread.Sleep(RoundMs);
        }
    }

    static void Disconnect()
    {
        if (connection != null)
            connection.Dispose();
        OdbcConnection.ReleaseObjectPool(); // else .NET may hand out the dead connection again
        connection = null;
    }

    static void Round()
    {
        if (connection == null)
        {
            // Autocommit: each SELECT sees what is new, and no lock stays.
            connection = new OdbcConnection(Environment.GetEnvironmentVariable("TILL_ODBC"));
            connection.Open();
        }
        foreach (var order in Rows("SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key"))
            TakeOver(order);
        foreach (var order in Rows("SELECT * FROM delivery_changed_orders WHERE pos_reference LIKE ?", Till + "-%"))
        {
            Write("UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?", order["revision"], order["payment_key"]);
            Console.WriteLine("{0}: {1}", order["pos_reference"], order["status"]);
        }
        foreach (var row in Rows("SELECT id, action, payment_key, error_text FROM delivery_actions"
            + " WHERE created_by = ? AND state IN ('refused', 'failed', 'expired') ORDER BY id", Till))
            if (shown.Add(row["id"]))
                Console.WriteLine("{0} {1}: {2}", row["action"], row["payment_key"], row["error_text"]);
    }

    static void TakeOver(Dictionary<string, object> order)
    {
        object key = order["payment_key"];
        string reference = Till + "-" + order["order_number"];
        using (var transaction = connection.BeginTransaction())
        {
            if (Write(transaction, "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?"
                + " WHERE payment_key = ? AND pos_revision = 0", order["revision"], reference, key) == 0)
                return; // another till was faster
            if ((string)order["status"] == "RECEIVED" && order["problem"] is DBNull && order["scheduled_for"] is DBNull)
                Write(transaction, "INSERT INTO delivery_actions (action, payment_key, preparing_time, request_id, created_by)"
                    + " VALUES ('accept', ?, ?, ?, ?)", key, ReadyInMinutes, "accept-" + key + "-1", Till);
            transaction.Commit();
        }
        Print(order, reference);
    }

    static void Print(Dictionary<string, object> order, string reference)
    {
        // The tables hold UTC. The driver returns them without a time zone.
        var received = DateTime.SpecifyKind((DateTime)order["received_utc"], DateTimeKind.Utc).ToLocalTime();
        string collect = order["amount_due"] is DBNull ? "ASK" : Number(order["amount_due"], "0.00");
        Console.WriteLine("{0} {1:HH:mm}, collect: {2} {3}", reference, received, collect, order["note"]);
        foreach (var line in Rows("SELECT * FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no", order["payment_key"]))
            Console.WriteLine("  {0} x {1} {2}",
                line["quantity"] is DBNull ? "?" : Number(line["quantity"], "0.####"), line["name"], line["note"]);
    }

    // Turkish settings would write 89,90, and the columns have four decimals.
    static string Number(object value, string format)
    {
        return Convert.ToDecimal(value).ToString(format, CultureInfo.InvariantCulture);
    }

    // All rows at once: a result that is read row by row would block the connection.
    static List<Dictionary<string, object>> Rows(string sql, params object[] values)
    {
        var rows = new List<Dictionary<string, object>>();
        using (var command = Command(null, sql, values))
        using (var reader = command.ExecuteReader())
            while (reader.Read())
                rows.Add(Enumerable.Range(0, reader.FieldCount).ToDictionary(i => reader.GetName(i), i => reader.GetValue(i)));
        return rows;
    }

    static int Write(string sql, params object[] values)
    {
        return Write(null, sql, values);
    }

    static int Write(OdbcTransaction transaction, string sql, params object[] values)
    {
        using (var command = Command(transaction, sql, values))
            return command.ExecuteNonQuery();
    }

    static OdbcCommand Command(OdbcTransaction transaction, string sql, object[] values)
    {
        var command = new OdbcCommand(sql, connection, transaction); // each parameter is a ?, in this order
        foreach (var value in values)
            command.Parameters.AddWithValue("", value);
        return command;
    }
}
