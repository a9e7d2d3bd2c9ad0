"""Authorization: the authorizer and its ACL index, the rules of each request, and the audit log."""
