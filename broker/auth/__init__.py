"""Who somebody is, and what they may do: authentication, authorisation, quotas."""
