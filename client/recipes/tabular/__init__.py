"""The recipe `tabular`: a binary target from the columns of a CSV or Parquet file.

Logistic regression or a small MLP, standardised with the federation's own means and variances.
`client_app:app` is an ordinary `flwr.clientapp.ClientApp`; `settings.py` lists what a plan may
set, `table.py` says how rows are read and held out.
"""
