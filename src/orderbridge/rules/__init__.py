"""Pure decisions without I/O and without a clock. Other packages carry them out.

receiving orders   cooldown poll_ends tokens deliveries lifecycle
sending actions    queue outbox_rows retry closures
problems           problems health
reports            business_day
"""
