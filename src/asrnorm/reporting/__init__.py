"""What people look at: figures and pages made from results. No torch here: it opens on a laptop."""
