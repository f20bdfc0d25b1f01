"""Tables, figures, claims and a report, drawn from MLflow alone."""
