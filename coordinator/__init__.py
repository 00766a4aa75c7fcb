"""The coordinator: schedules rounds, combines updates, keeps the record of all that happened."""
