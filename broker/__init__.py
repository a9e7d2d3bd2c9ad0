"""The trio shell: listeners, connections, dispatch, handlers, groups. Rules live in machines; here bytes move."""
