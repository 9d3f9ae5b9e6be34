"""The program's audit finds no broken promise."""

from datetime import UTC, datetime

from sqlalchemy import create_engine
from tests.sim.judge import Judge

from orderbridge.jobs.audit import audit


class AuditFindsNothing(Judge):
    """`orderbridge audit` over the tables, at the end."""

    promise = "audit"

    def finish(self) -> None:
        engine = create_engine(f"sqlite:///{self.sim.path}")
        with engine.connect() as connection:
            result = audit(connection, self.sim.settings, datetime(2000, 1, 1, tzinfo=UTC))
        engine.dispose()
        for finding in result.findings:
            self.broken(f"{finding}")
