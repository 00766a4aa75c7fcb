"""The site agent: works for one coordinator, on data that only the site can read."""
