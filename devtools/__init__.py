"""Development tools: generators of documentation, mutation tests, long campaigns, measures of prose."""
