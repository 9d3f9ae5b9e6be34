"""The board: what the restaurant sees and hears of its orders, and what it taps. Loaded where `[web] board` is on."""
