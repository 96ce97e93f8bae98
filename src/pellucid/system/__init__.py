"""Files, weights and languages: what data, training and apps share."""
