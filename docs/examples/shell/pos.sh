#!/bin/sh
# The smallest till, in a shell: takes each new order over, accepts it and prints it. To try things out: it has no print
# memory, so an order that it has taken over just before a crash is never printed. pos.py and the others have one.
#
#   pos.sh orderbridge.db                                     with sqlite3
#   pos.sh postgresql://till:secret-2@127.0.0.1/pos           with psql
set -eu

sql() { # prints the rows, their columns separated by |
  case $database in
    postgres*) psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$1" "$database" ;;
    *) sqlite3 -batch -cmd '.timeout 5000' "file:$database?mode=rw" "$1" ;;
  esac
}

round() {
  sql "SELECT payment_key, revision FROM delivery_new_orders ORDER BY received_utc, payment_key" |
    while IFS='|' read -r key revision; do
      number=$(sql "UPDATE delivery_orders SET pos_revision = $revision, pos_reference = 'SH-' || order_number
        WHERE payment_key = '$key' AND pos_revision = 0 RETURNING pos_reference")
      [ -n "$number" ] || continue # another till was faster
      printf '\n%s\n' "$number"
      sql "SELECT quantity, name, replace(note, '|', '/') FROM delivery_order_items
        WHERE payment_key = '$key' ORDER BY line_no"
      sql "INSERT INTO delivery_actions (action, payment_key, preparing_time, request_id, created_by)
        VALUES ('accept', '$key', 25, 'accept-$key-1', 'SH')"
    done
  # What changed, and what was cancelled. Each is shown once: pos_revision is the revision that was shown.
  sql "UPDATE delivery_orders SET pos_revision = revision WHERE pos_reference LIKE 'SH-%' AND pos_revision < revision
    RETURNING pos_reference, last_change, status"
}

database=$1
while :; do
  round || echo 'once more in 2 seconds' >&2
  sleep 2
done
