"""Promises 1, 2 and 4 to 6 by the program's own audit: what the tables show. The other judges watch the wire."""

from datetime import UTC, datetime

from sqlalchemy import create_engine
from tests.sim.judge import Judge

from orderbridge.jobs.audit import audit


class AuditFindsNothing(Judge):
    """`orderbridge audit` over the tables, at the end."""

    def finish(self) -> None:
        engine = create_engine(f"sqlite:///{self.sim.path}")
        with engine.connect() as connection:
            result = audit(connection, self.sim.settings, datetime(2000, 1, 1, tzinfo=UTC))
        engine.dispose()
        for finding in result.findings:
            self.sim.violated(str(finding.promise), f"{finding}")
