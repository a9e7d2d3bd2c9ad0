"""Development tools: documentation, mutation tests, long campaigns, fuzzing, builds, measures of imports and prose."""
