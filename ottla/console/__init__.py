"""Web console of a broker. All but `node_runner` is imported only if ``ottla.console.listener`` is set.

Each change, and each page about the cluster, consists of ordinary Kafka requests, which the node's own dispatcher
answers with the principal of the session (`in_process`): permissions, validation and error messages are those of the
broker. Pages about this node (connections, frames, readers, traffic, history) read its state, and check ACLs first; so
does the page of metadata changes.
"""
