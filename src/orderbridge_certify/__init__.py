"""`orderbridge certify` plays scenarios with a POS, checks what it writes, and reports each criterion's verdict.

scenarios.py has the table of scenarios, play.py plays them, notes.py records the POS's writes with triggers, setup.py
starts the till and reads what it prints, and judging.py judges the recorded facts (seen.py).
"""

from orderbridge.texts import SENTENCES

SENTENCES.add(__name__)
