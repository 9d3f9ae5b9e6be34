"""Which criteria each of the eleven bad tills fails, and no others."""

OWN = {
    "accepts_twice": {"accept.one_accept"},
    "never_takes_over": {"takes_over.taken_over"},
    "writes_newest": {"revision_read.revision_that_was_read"},
    "ignores_cancelled": {"cancelled_after.cancellation_noted", "cancelled_after.kitchen_told"},
    "tells_no_kitchen": {"cancelled_after.kitchen_told"},
    "ignores_contents": {"contents.contents_noted", "contents.ticket_again"},
    "bills_prepaid": {"prepaid.collects_nothing"},
    "holds_lock": {"lock.short_lock"},
    "deferred_begin": {"others_write.taken_all_the_same"},
    "writes_foreign_column": {"its_own.own_columns"},
    "deletes_row": {"its_own.deletes_nothing"},
}
