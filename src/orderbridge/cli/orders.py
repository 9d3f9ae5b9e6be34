"""Looking: status, orders, order KEY, quarantine."""

from datetime import datetime, timedelta
from typing import Any

import click

from orderbridge.cli.common import RUNNING, Context, as_json, plain, show_json, show_rows

pass_context = click.make_pass_decorator(Context)

LATE_COOLDOWNS = 3  # polls that were missed before an account counts as ill


@click.command()
@as_json
@pass_context
def status(context: Context, as_json: bool) -> None:
    """How it stands: accounts, orders, outbox. Exit code 1 when something needs a look."""
    from orderbridge.clock import SystemClock
    from orderbridge.store import accounts, actions, orders, quarantine

    settings = context.settings
    fingerprints = [account.fingerprint for account in settings.accounts]
    market = settings.marketplace
    oldest = SystemClock().now() - timedelta(seconds=LATE_COOLDOWNS * market.cooldown_seconds + market.timeout_seconds)
    listed, counts, waiting, kept = context.read(
        lambda tx: (
            accounts.overview(tx, fingerprints),
            orders.counts(tx),
            actions.count_unfinished(tx),
            quarantine.unresolved(tx),
        )
    )
    for account in listed:
        polled = account["last_poll_ok_utc"]
        account["healthy"] = account["state"] == "ok" and polled is not None and polled >= oldest
    healthy = len(listed) == len(fingerprints) and all(account["healthy"] for account in listed)
    facts: dict[str, Any] = {
        "healthy": healthy,
        "accounts": listed,
        "orders": counts,
        "actions_unfinished": waiting,
        "quarantined": len(kept),
    }
    if as_json:
        show_json(facts)
    else:
        click.echo("healthy" if healthy else "NEEDS A LOOK: see the accounts below, or run `orderbridge check`")
        show_rows(listed, machine=False, empty=f"No account has polled yet. {RUNNING}")
        if any(_is_left_alone(account, oldest) for account in listed):
            click.echo(f"An account above is not being polled. {RUNNING}", err=True)
        for name, value in {
            **{f"orders {key}": number for key, number in counts.items()},
            "actions unfinished": waiting,
            "quarantined": len(kept),
        }.items():
            click.echo(f"{name}: {value}")
    raise SystemExit(0 if healthy else 1)


def _is_left_alone(account: dict[str, Any], oldest: datetime) -> bool:
    """Nobody tries to poll it. A daemon notes each try, but without a login it comes to none, and its state says so."""
    tried = account["last_poll_utc"]
    return account["state"] not in {"login_refused", "unreachable"} and (tried is None or tried < oldest)


@click.command()
@click.option("--new", "which", flag_value="new", help="Only orders that no till has taken over.")
@click.option("--changed", "which", flag_value="changed", help="Only orders that changed since a till took them over.")
@click.option("--all", "which", flag_value="all", help="Ended orders too.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@as_json
@pass_context
def orders(context: Context, which: str | None, limit: int, as_json: bool) -> None:
    """The open orders, the newest first."""
    from sqlalchemy import select

    from orderbridge.store import tables

    table = {
        "new": tables.new_orders,
        "changed": tables.changed_orders,
        "all": tables.orders,
    }.get(which or "", tables.open_orders)
    names = (
        "received_utc",
        "payment_key",
        "account",
        "order_number",
        "status",
        "restaurant_name",
        "total",
        "revision",
        "pos_revision",
        "problem",
    )
    query = select(*(table.c[name] for name in names)).order_by(table.c.received_utc.desc()).limit(limit)
    rows = context.read(lambda tx: [dict(row) for row in tx.execute(query).mappings()])
    show_rows(rows, machine=as_json, empty="No orders.")


@click.command()
@click.argument("key")
@as_json
@pass_context
def order(context: Context, key: str, as_json: bool) -> None:
    """One order's whole story. KEY is its payment_key; the first characters are enough."""
    from sqlalchemy import select

    from orderbridge.store import tables

    def work(tx: Any) -> dict[str, Any] | None:
        found = (
            tx.execute(
                select(tables.orders)
                .where(tables.orders.c.payment_key.startswith(key.lower(), autoescape=True))
                .limit(2)
            )
            .mappings()
            .all()
        )
        if len(found) != 1:
            return None
        payment_key = found[0]["payment_key"]
        parts: dict[str, Any] = {"order": {k: v for k, v in found[0].items() if k != "payload_hash"}}
        for name, table in (
            ("items", tables.items),
            ("options", tables.options),
            ("events", tables.events),
            ("actions", tables.actions),
        ):
            rows = tx.execute(select(table).where(table.c.payment_key == payment_key).order_by(*table.primary_key))
            parts[name] = [dict(row) for row in rows.mappings()]
        return parts

    story = context.read(work)
    if story is None:
        raise click.ClickException(
            f"No single order has a payment_key that begins with {key}. See `orderbridge orders --all`."
        )
    if as_json:
        show_json(story)
        return
    for name, value in story["order"].items():
        if value is not None and name != "payload":
            click.echo(f"{name}: {plain(value)}")
    for name in ("items", "options", "events", "actions"):
        click.echo(f"\n{name}")
        rows = [{k: v for k, v in row.items() if k != "payment_key"} for row in story[name]]
        show_rows(rows, machine=False, empty="  none")


@click.group()
def quarantine() -> None:
    """Documents that could not become orders."""


@quarantine.command("list")
@as_json
@pass_context
def quarantine_list(context: Context, as_json: bool) -> None:
    """What is kept, with the reason."""
    from orderbridge.store import quarantine as kept

    show_rows(context.read(kept.unresolved), machine=as_json, empty="Nothing is in quarantine.")


@quarantine.command("retry")
@click.argument("ids", type=int, nargs=-1)
@as_json
@pass_context
def quarantine_retry(context: Context, ids: tuple[int, ...], as_json: bool) -> None:
    """Take documents in whose cause is gone. Without IDS: all. Exit code 1 when one stays."""
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.release import Outcome, release
    from orderbridge.store import quarantine as kept

    waiting = [row["id"] for row in context.read(kept.unresolved)]
    if unknown := sorted(set(ids) - set(waiting)):
        raise click.ClickException(f"Not in quarantine: {unknown}. See `orderbridge quarantine list`.")
    needs_payment_id = context.settings.marketplace.needs_payment_status_id
    done = []
    database = context.database()
    try:
        for row_id in sorted(ids or waiting, reverse=True):  # the newest first: of one order only that one counts
            released = release(database, row_id, needs_payment_id=needs_payment_id, now=SystemClock().now())
            if released is not None:
                done.append(released)
    finally:
        database.close()
    rows = [{name: getattr(one, name) for name in one.__slots__} for one in done]
    show_rows(rows, machine=as_json, empty="Nothing is in quarantine.")
    raise SystemExit(any(one.outcome in {Outcome.KEPT, Outcome.WAITS, Outcome.FOREIGN} for one in done))


COMMANDS = (status, orders, order, quarantine)
