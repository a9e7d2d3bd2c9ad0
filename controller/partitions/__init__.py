"""Rules of the active controller for replica placement, reassignment, leaders and ISRs; reassignment plans of tools."""
