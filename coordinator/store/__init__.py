"""All SQL of the coordinator: tables, migrations, transactions, queries by subject."""
