from hypothesis import settings

# Machines that run the tests are shared: how long one example takes shows nothing.
settings.register_profile("fedward", deadline=None)
settings.load_profile("fedward")
