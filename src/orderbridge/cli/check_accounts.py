"""The accounts: does the service let them in, and which restaurants are theirs?"""

from typing import TYPE_CHECKING

from orderbridge.cli.accounts import with_account
from orderbridge.cli.common import Context
from orderbridge.cli.report import Report
from orderbridge.errors import MarketplaceError
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.marketplace.client import Client
    from orderbridge.store.database import Database


async def check_accounts(context: Context, database: "Database | None", report: Report) -> None:
    """Each of them; one that is refused hides no other."""

    async def ask(client: "Client") -> str:
        return ", ".join(restaurant.name for restaurant in await client.restaurants())

    for account in context.settings.accounts:
        if account.app_secret_key == account.rest_secret_key:
            report.look("account", say("check.same_secret"), subject=account.name)
        try:
            names = await with_account(context, database, account, ask)
        except MarketplaceError as error:
            report.failed("account", error, subject=account.name)
        else:
            if names:
                report.good("account", names, subject=account.name)
            else:
                report.look("account", say("check.no_restaurants"), say("check.ask_for_some"), subject=account.name)
