// A mini POS for orderbridge. Go 1.18 or newer with the package github.com/mattn/go-sqlite3.
//
//	go build pos.go
//	./pos DATABASE [--orders N]     the till, until it is stopped or has taken N orders over
//	./pos DATABASE VERB ARGUMENTS   what a person does, while the till runs
//
//	accept KEY MINUTES   cancel KEY REASON_ID   on_the_way KEY   complete KEY   withdraw KEY (what waits)
//	open RESTAURANT_ID   close RESTAURANT_ID   food_off FOOD_ID RESTAURANT_ID   food_on FOOD_ID RESTAURANT_ID
//	ticket KEY (all that the kitchen was told)   collect KEY (what the courier collects)
//
// The till takes orders over and accepts them. One with a food that was switched off is cancelled; one that is for
// later or has a `problem` waits for a person. It may be killed at any moment and goes on where it was: a ticket that
// may be on paper already is printed once more, with REPRINT on it. Several tills may run on one file.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

const (
	look           = 500 * time.Millisecond
	readyInMinutes = 25
	outOfStock     = 1 // delivery_cancel_reasons

	// What must not be forgotten. pos_prints: what the kitchen is told; its paper waits, is begun, or is out.
	// pos_asked: what we asked for and whose verdict nobody has seen.
	tables = `
		CREATE TABLE IF NOT EXISTS pos_prints (
			id INTEGER PRIMARY KEY, payment_key TEXT NOT NULL, revision INTEGER NOT NULL, kind TEXT NOT NULL,
			ticket TEXT NOT NULL, paper TEXT NOT NULL DEFAULT 'waits', UNIQUE (payment_key, revision, kind));
		CREATE TABLE IF NOT EXISTS pos_asked (request_id TEXT PRIMARY KEY);`
	ours = "pos_reference LIKE 'A-%'" // a till notes and shows the changes of its own orders only
	// is_later: over an hour ahead, by this computer's time zone. NULL: not scheduled, or no time that can be read.
	orders = `SELECT *, datetime(scheduled_for) > datetime('now', 'localtime', '+60 minutes') AS is_later,
		CASE WHEN amount_due IS NULL THEN 'ask' ELSE printf('%.2f', amount_due) END AS collect`
	// Whether a food of the order was last switched off, and not on.
	soldOut = `SELECT 1 FROM delivery_order_items AS item WHERE payment_key = ? AND 'deactivate_food' = (
		SELECT action FROM delivery_actions WHERE food_id = item.food_id AND state IN ('pending', 'sending', 'done')
			AND restaurant_id IN (SELECT id FROM delivery_restaurants WHERE account = ?) ORDER BY id DESC LIMIT 1)`
	// Each item, its options below it, then its note. NULL: the platform did not say.
	lines = `SELECT line FROM (
		SELECT payment_key, line_no, 1 AS part, 0 AS option_no,
			'  ' || COALESCE(quantity, '?') || ' x ' || COALESCE(name, '?') AS line FROM delivery_order_items
		UNION ALL SELECT payment_key, line_no, 2, option_no, '    ' || COALESCE(operation, '?') || ' '
			|| COALESCE(group_name, '?') || ': ' || COALESCE(option_name, '?') FROM delivery_order_item_options
		UNION ALL SELECT payment_key, line_no, 3, 0, '    note: ' || note FROM delivery_order_items WHERE note <> ''
	) WHERE payment_key = ? ORDER BY line_no, part, option_no`
	toldSoFar = "SELECT ticket FROM pos_prints WHERE payment_key = ? AND paper <> 'waits' ORDER BY id"
	lampsNow  = `SELECT lamp, account, sentence, remedy FROM delivery_lamp UNION ALL
		SELECT 'red', '?', 'orderbridge has not run yet', NULL WHERE NOT EXISTS (SELECT 1 FROM delivery_lamp)`
)

// The action and the columns that a verb's arguments fill.
var verbs = map[string][]string{
	"accept":     {"accept", "payment_key", "preparing_time"},
	"cancel":     {"cancel", "payment_key", "reason_id"},
	"on_the_way": {"on_the_way", "payment_key"},
	"complete":   {"complete", "payment_key"},
	"open":       {"open_restaurant", "restaurant_id"},
	"close":      {"close_restaurant", "restaurant_id"},
	"food_off":   {"deactivate_food", "food_id", "restaurant_id"},
	"food_on":    {"activate_food", "food_id", "restaurant_id"},
}

// A row: the values of its columns by name, a NULL as "".
type row map[string]string

var db *sql.Conn // one connection: a transaction begins where the code says BEGIN

func main() {
	words := os.Args[1:]
	if len(words) == 0 {
		wrong("the head of this file says how it is started", 64)
	}
	// mode=rw: never make an empty file. _busy_timeout: wait that long for the daemon's transactions.
	file := url.URL{Scheme: "file", Opaque: url.PathEscape(words[0]), RawQuery: "mode=rw&_busy_timeout=5000"}
	pool, err := sql.Open("sqlite3", file.String())
	check(err)
	db, err = pool.Conn(context.Background())
	check(err)
	defer pool.Close()
	write(tables)
	if len(words) > 1 && words[1] != "--orders" {
		step(words[1], words[2:])
		return
	}
	orders := -1
	if len(words) > 2 {
		orders, err = strconv.Atoi(words[2])
		check(err)
	}
	run(orders)
}

// ---- the till -------------------------------------------------------------------------------------------------------

func run(most int) {
	// The last run may have ended in the middle of a paper: print it again, and say so.
	write("UPDATE pos_prints SET paper = 'waits', ticket = 'REPRINT ' || ticket WHERE paper = 'begun'")
	// A ticket holds the customer's words: orderbridge blanks its own 90 days after the end.
	write(`DELETE FROM pos_prints WHERE payment_key IN
		(SELECT payment_key FROM delivery_orders WHERE ended_utc < datetime('now', '-90 days'))`)
	taken, lamps := 0, map[string]bool{}
	for {
		orElse(func(err error) { say("!!! " + err.Error()) }, func() { // the next look does what this one could not
			takeChanged()
			takeNew(&taken)
			takeScheduled()
			printWaiting()
			showVerdicts()
			lamps = showLamps(lamps)
		})
		left := rows("SELECT 1 FROM pos_asked UNION ALL SELECT 1 FROM delivery_changed_orders WHERE " + ours)
		if most >= 0 && taken >= most && len(left) == 0 {
			return
		}
		time.Sleep(look)
	}
}

// Take each new order over: our number, its ticket and our answer are written together or not at all.
func takeNew(taken *int) {
	for _, order := range rows(orders + " FROM delivery_new_orders ORDER BY received_utc, payment_key") {
		key, reference, kind := order["payment_key"], "A-"+order["order_number"], "NEW"
		if order["is_later"] == "1" {
			kind = "LATER"
		}
		if order["status"] == "RECEIVED" && len(rows(soldOut, key, order["account"])) > 0 {
			kind = "SOLD OUT"
		}
		ticket := ticketText(order, kind, reference)
		transaction(func() {
			mine := write(`UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?
				WHERE payment_key = ? AND pos_revision = 0 AND ended_utc IS NULL`, order["revision"], reference, key)
			if mine == 0 {
				return // another till has it, or it was cancelled since we read it
			}
			remember(order, kind, ticket)
			if kind == "SOLD OUT" {
				askOnce("cancel", key, "reason_id", outOfStock)
			} else {
				accept(order)
			}
			*taken++
		})
	}
}

func accept(order row) {
	if order["status"] == "RECEIVED" && !waitsForPerson(order) {
		askOnce("accept", order["payment_key"], "preparing_time", readyInMinutes)
	}
}

// Sums that do not add up hold nothing up.
func waitsForPerson(order row) bool {
	for _, code := range strings.Split(order["problem"], ",") {
		if code != "" && !strings.HasPrefix(code, "total_mismatch") {
			return true
		}
	}
	return order["scheduled_for"] != "" && order["is_later"] != "0"
}

// Asked before, whatever became of it: a second try is a person's.
func askOnce(action, key, argument string, value any) {
	request := action + "-" + key
	if len(rows("SELECT 1 FROM delivery_actions WHERE request_id = ?", request)) == 0 {
		ask(request, action, []string{"payment_key", argument}, []any{key, value})
	}
}

// A row in the outbox, and with it the note that we wait for its verdict.
func ask(request, action string, names []string, values []any) {
	write("INSERT INTO delivery_actions (request_id, action, created_by, "+strings.Join(names, ", ")+
		") VALUES (?, ?, 'mini POS'"+strings.Repeat(", ?", len(names))+")", append([]any{request, action}, values...)...)
	write("INSERT INTO pos_asked (request_id) VALUES (?)", request)
}

// The time of an order that was put by for later has come.
func takeScheduled() {
	for _, order := range rows(orders + " FROM delivery_open_orders AS due WHERE " + ours + ` AND COALESCE(is_later, 0) = 0
			AND EXISTS (SELECT 1 FROM pos_prints WHERE payment_key = due.payment_key AND kind = 'LATER')
			AND NOT EXISTS (SELECT 1 FROM pos_prints WHERE payment_key = due.payment_key AND kind = 'NOW')`) {
		ticket := ticketText(order, "NOW", order["pos_reference"])
		transaction(func() {
			remember(order, "NOW", ticket)
			accept(order)
		})
	}
}

// What became of our orders: the revision that we read is noted together with what the kitchen must hear.
func takeChanged() {
	for _, order := range rows(orders + " FROM delivery_changed_orders WHERE " + ours + " ORDER BY changed_utc, payment_key") {
		key, reference, revision := order["payment_key"], order["pos_reference"], order["revision"]
		kind, ticket, over := paperFor(order), "", ""
		if kind == "STOP" {
			ticket = "STOP " + reference + "\n  cancelled: do not cook it, do not send it out"
		} else if kind != "" {
			ticket = ticketText(order, kind, reference)
		}
		transaction(func() {
			noted := "UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ? AND pos_revision < ?"
			if write(noted, revision, key, revision) > 0 && kind != "" {
				remember(order, kind, ticket)
			}
		})
		if order["ended_utc"] != "" {
			over = ", over"
		}
		say(reference + ": " + order["status"] + over)
	}
}

// Which paper a change brings: "" for none.
func paperFor(order row) string {
	told := row{}
	last := "SELECT kind, ? > revision AS is_newer FROM pos_prints WHERE payment_key = ? ORDER BY id DESC LIMIT 1"
	for _, told = range rows(last, number(order["contents_revision"]), order["payment_key"]) {
	}
	switch {
	case order["ended_utc"] != "": // first: what is over is never printed to be cooked
		// SOLD OUT: that was our own cancel, before anybody cooked; its verdict is word enough.
		if order["ended_by"] == "cancelled" && !isOneOf(told["kind"], "", "STOP", "SOLD OUT") {
			return "STOP"
		}
	case isOneOf(told["kind"], "", "STOP") || told["is_newer"] == "1":
		return "CHANGED" // other items, notes or money
	}
	return ""
}

func remember(order row, kind, ticket string) {
	write("INSERT OR IGNORE INTO pos_prints (payment_key, revision, kind, ticket) VALUES (?, ?, ?, ?)",
		order["payment_key"], order["revision"], kind, ticket)
}

// What to collect, what to cook, and what else to know.
func ticketText(order row, kind, reference string) string {
	method := order["payment_method"]
	if method == "" {
		method = "?"
	}
	ticket := []string{kind + " " + reference, "  collect: " + order["collect"] + ", " + method}
	if kind == "SOLD OUT" {
		ticket = append(ticket, "  do not cook it: we cancel it")
	}
	if order["is_later"] == "1" {
		ticket = append(ticket, "  not now: for "+order["scheduled_for"])
	} else if order["scheduled_for"] != "" {
		ticket = append(ticket, "  for "+order["scheduled_for"])
	}
	if order["problem"] != "" {
		ticket = append(ticket, "  look at it in the platform's panel: "+order["problem"])
	}
	if order["status"] == "RECEIVED" && waitsForPerson(order) {
		ticket = append(ticket, "  a person must accept it: "+order["payment_key"])
	}
	if order["note"] != "" {
		ticket = append(ticket, "  note: "+order["note"])
	}
	for _, one := range rows(lines, order["payment_key"]) {
		ticket = append(ticket, one["line"])
	}
	return strings.Join(ticket, "\n")
}

// After the COMMIT. Marked before and after the paper: so the next start knows what a crash left in between.
func printWaiting() {
	for _, paper := range rows(`SELECT id, ticket FROM pos_prints AS prints
			JOIN delivery_orders AS orders ON orders.payment_key = prints.payment_key
			WHERE paper = 'waits' AND (kind = 'STOP' OR ended_utc IS NULL) ORDER BY id`) { // over: never to be cooked
		if write("UPDATE pos_prints SET paper = 'begun' WHERE id = ? AND paper = 'waits'", paper["id"]) == 0 {
			continue // another till is at it
		}
		say(paper["ticket"]) // here is the printer
		write("UPDATE pos_prints SET paper = 'out' WHERE id = ?", paper["id"])
	}
}

// Tell the cashier how each of our rows ended, and loudly what was not done.
func showVerdicts() {
	for _, verdict := range rows(`SELECT asked.request_id, action, state, error_text,
			COALESCE(pos_reference, food_id, actions.restaurant_id) AS about FROM pos_asked AS asked
			JOIN delivery_actions AS actions ON actions.request_id = asked.request_id
			LEFT JOIN delivery_orders AS orders ON orders.payment_key = actions.payment_key
			WHERE state NOT IN ('pending', 'sending') ORDER BY actions.id`) {
		loud := ""
		if isOneOf(verdict["state"], "refused", "failed", "expired") {
			loud = "!!! "
		}
		end := verdict["state"] + " " + verdict["error_text"]
		say(strings.TrimSpace(loud + verdict["action"] + " " + verdict["about"] + ": " + end))
		write("DELETE FROM pos_asked WHERE request_id = ?", verdict["request_id"])
	}
}

// What is wrong with orderbridge itself, when that changes. It is right also when the daemon is dead.
func showLamps(last map[string]bool) map[string]bool {
	lamps := map[string]bool{}
	for _, lamp := range rows(lampsNow) {
		words := "lamp " + lamp["lamp"] + ", " + lamp["account"] + ": " + lamp["sentence"] + " " + lamp["remedy"]
		if !last[words] && (len(last) > 0 || lamp["lamp"] != "green") {
			say(strings.TrimSpace(words))
		}
		lamps[words] = true
	}
	return lamps
}

// ---- what a person does: it ends with 1 and a sentence when it went wrong, with 64 for what cannot be done here -----

func step(verb string, values []string) {
	found := rows(orders+" FROM delivery_orders WHERE payment_key = ?", strings.Join(values[:min(1, len(values))], ""))
	if names := verbs[verb]; len(names) > 0 && len(values) == len(names)-1 {
		if names[1] == "payment_key" && len(found) == 0 {
			wrong("no such order", 1)
		}
		if verb == "on_the_way" && !isOneOf(found[0]["courier_type"], "", "restaurant") {
			wrong("the restaurant does not bring it: "+found[0]["courier_type"], 1)
		}
		// What the tables refuse is an error of the program or a wrong argument.
		orElse(func(err error) { wrong("refused: "+err.Error(), 1) }, func() { click(verb, names[0], names[1:], values) })
		return
	}
	if len(found) == 0 || !isOneOf(verb, "ticket", "collect", "withdraw") {
		wrong("no such order or no such verb; the head of this file has them", 64)
	}
	switch verb {
	case "collect":
		say(found[0]["collect"])
	case "ticket":
		for _, print := range rows(toldSoFar, values[0]) {
			say(print["ticket"])
		}
	case "withdraw":
		if write(`UPDATE delivery_actions SET withdraw = 1
				WHERE payment_key = ? AND state IN ('pending', 'sending')`, values[0]) == 0 {
			say("nothing of it waits")
		}
	}
}

// A new try has a new request_id: …, …-2, …-3. A doubled click is none: it finds the row of the first.
func click(verb, action string, names, values []string) {
	isOrder, request := names[0] == "payment_key", verb+"-"+strings.Join(values, "-")
	if isOrder {
		request = verb + "-" + values[0]
	}
	transaction(func() {
		tries := rows(`SELECT state, finished_utc > datetime('now', '-10 seconds') AS is_fresh FROM delivery_actions
			WHERE request_id = ? OR request_id LIKE ? || '-%' ORDER BY id`, request, request)
		last := row{}
		if len(tries) > 0 {
			last = tries[len(tries)-1]
			request += "-" + strconv.Itoa(len(tries)+1)
		}
		// An order is accepted once. A restaurant may be opened again tomorrow, only not twice by one click.
		isDone := last["state"] == "done" && (isOrder || last["is_fresh"] == "1")
		if isDone || isOneOf(last["state"], "pending", "sending") {
			say("asked already: " + last["state"])
			return
		}
		arguments := make([]any, len(values))
		for i, value := range values {
			arguments[i] = value
		}
		ask(request, action, names, arguments)
	})
}

// ---- the database, and the rest -------------------------------------------------------------------------------------

// Each error of the database ends what is being done, as a panic, up to orElse.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func orElse(failed func(error), work func()) {
	defer func() {
		if reason := recover(); reason != nil {
			err, isError := reason.(error)
			if !isError {
				panic(reason)
			}
			failed(err)
		}
	}()
	work()
}

func transaction(work func()) {
	write("BEGIN IMMEDIATE") // a deferred one fails at once beside another writer, whatever the timeout
	isDone := false
	defer func() {
		if !isDone {
			write("ROLLBACK")
		}
	}()
	work()
	write("COMMIT")
	isDone = true
}

// How many rows it wrote.
func write(statement string, values ...any) int64 {
	result, err := db.ExecContext(context.Background(), statement, values...)
	check(err)
	count, err := result.RowsAffected()
	check(err)
	return count
}

// All of them: nothing is being read while we write.
func rows(statement string, values ...any) []row {
	found, err := db.QueryContext(context.Background(), statement, values...)
	check(err)
	defer found.Close()
	names, err := found.Columns()
	check(err)
	all, cells, places := []row{}, make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range cells {
		places[i] = &cells[i]
	}
	for found.Next() {
		check(found.Scan(places...))
		one := row{}
		for i, name := range names {
			one[name] = cells[i].String
		}
		all = append(all, one)
	}
	check(found.Err())
	return all
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	check(err)
	return value
}

func isOneOf(word string, words ...string) bool {
	for _, one := range words {
		if one == word {
			return true
		}
	}
	return false
}

func min(one, other int) int {
	if one < other {
		return one
	}
	return other
}

func say(words string) {
	fmt.Println(words)
}

func wrong(sentence string, code int) {
	fmt.Fprintln(os.Stderr, sentence)
	os.Exit(code)
}
